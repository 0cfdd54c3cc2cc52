// bindings: the Python module backend._native, one file and one function per topic.
// It may include core, sim, live, sampling and nanobind.
// Names are the C++ ones. Errors are std::invalid_argument, a sentence, which Python sees as ValueError.
#pragma once

#include <nanobind/nanobind.h>

namespace outrider {

class Core;

void bind_allocate(nanobind::module_ & m);
void bind_devices(nanobind::module_ & m);
void bind_types(nanobind::module_ & m);
void bind_evict(nanobind::module_ & m);
void bind_live(nanobind::module_ & m);
void bind_predict(nanobind::module_ & m);
void bind_recorder(nanobind::module_ & m);
void bind_repack(nanobind::module_ & m);
void bind_sampling(nanobind::module_ & m);
void bind_sim(nanobind::module_ & m);
void bind_speed(nanobind::module_ & m);

// The core of a Python `Core` object.
Core & core_of(nanobind::handle core);

}  // namespace outrider
