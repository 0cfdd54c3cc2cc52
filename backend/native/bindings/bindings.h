// One function per topic; each file binds what its name says.
#pragma once

#include <nanobind/nanobind.h>

namespace outrider {

void bind_core(nanobind::module_ & m);
void bind_live(nanobind::module_ & m);

}  // namespace outrider
