#include "live/io/memory_filler.h"

#include <algorithm>
#include <utility>

#include "live/io/reserve.h"

namespace outrider {

MemoryFiller::MemoryFiller(std::vector<std::span<uint8_t>> memory, std::function<void()> filled)
    : thread_([this, memory = std::move(memory), filled = std::move(filled)] { run(memory, filled); }) {}

MemoryFiller::~MemoryFiller() {
    ending_ = true;
    thread_.join();
}

void MemoryFiller::run(const std::vector<std::span<uint8_t>> & memory, const std::function<void()> & filled) const {
    constexpr size_t step = size_t(32) << 20;
    for (const auto & piece : memory) {
        for (size_t at = 0; at < piece.size(); at += step) {
            if (ending_) {
                return;
            }
            give_pages(piece.data() + at, std::min(step, piece.size() - at));
        }
    }
    if (!ending_) {
        filled();
    }
}

}  // namespace outrider
