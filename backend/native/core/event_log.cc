#include "core/event_log.h"

#include <bit>
#include <cstring>
#include <limits>
#include <sstream>

#include "core/core.h"
#include "core/splitmix.h"

namespace outrider {
namespace {

const char * name_of(Part part) { return part == Part::top ? "" : part == Part::bottom ? " (bottom)" : " (staged)"; }

template <typename T>
std::string listed(std::span<const T> values) {
    std::ostringstream text;
    for (const T & v : values) {
        text << ' ' << v;
    }
    return text.str();
}

uint64_t hash_of(std::span<const float> values) {
    uint64_t hash = values.size();
    for (const float v : values) {
        hash = splitmix(hash ^ std::bit_cast<uint32_t>(v));
    }
    return hash;
}

}  // namespace

template <typename T>
void EventLog::keep(std::span<const T> & values) {
    memory_.emplace_back(new std::byte[values.size_bytes()]);
    if (!values.empty()) {
        std::memcpy(memory_.back().get(), values.data(), values.size_bytes());
    }
    values = {reinterpret_cast<const T *>(memory_.back().get()), values.size()};
}

void EventLog::append(const Event & event, std::span<const Command> commands) {
    entries_.push_back({event, {commands.begin(), commands.end()}});
    std::visit(Overloaded{
                   [&](Measured & e) { keep(e.speeds); },
                   [&](PassBegan & e) { keep(e.tokens), keep(e.sequences); },
                   [&](Routed & e) { keep(e.routing.ids), keep(e.routing.weights); },
                   [&](GateSeen & e) { keep(e.input); },
                   [&](Stocked & e) { keep(e.experts), keep(e.wanted); },
                   [](auto &) {},
               },
               entries_.back().event);
}

int64_t replay(const EventLog & log, Core & core) {
    Commands out;
    for (size_t i = 0; i < log.entries().size(); i++) {
        out.clear();
        core.handle(log.entries()[i].event, out);
        if (out != log.entries()[i].commands) {
            return int64_t(i);
        }
    }
    return -1;
}

std::string describe(const Event & event) {
    std::ostringstream text;
    text.precision(std::numeric_limits<double>::max_digits10);
    std::visit(Overloaded{
                   [&](const RequestBegan & e) {
                       text << "request began";
                       e.sequence == 0 ? text : text << ", sequence " << e.sequence;
                   },
                   [&](const Tuned & e) {
                       text << "tuned: prefetch " << e.tuning.prefetch << ", depth " << e.tuning.depth << ", copy cost "
                            << e.tuning.copy_cost << ", eviction " << e.tuning.eviction;
                   },
                   [&](const Measured & e) {
                       text << "measured:";
                       for (const HostSpeeds & s : e.speeds) {
                           text << " possible " << s.possible << ", " << s.n_copy << " copies, us: link "
                                << s.link_us_per_byte << ", host " << s.host_us << ' ' << s.host_us_per_byte << ' '
                                << s.host_row_us_per_byte << ", device " << s.device_us_per_byte << ' '
                                << s.device_row_us_per_byte << " times " << s.device_times << ';';
                       }
                   },
                   [&](const PassBegan & e) {
                       text << "pass began, " << (e.phase == Phase::prefill ? "prefill" : "decode") << ", tokens"
                            << listed(e.tokens) << ", sequences" << listed(e.sequences);
                   },
                   [&](const Reached & e) { text << "reached the gate of layer " << e.layer; },
                   [&](const Routed & e) {
                       text << "routed layer " << e.routing.layer << ", " << e.routing.n_token
                            << " tokens:" << listed(e.routing.ids) << "; weights" << listed(e.routing.weights);
                   },
                   [&](const GateSeen & e) {
                       text << "gate seen, layer " << e.layer << ", " << e.n_token << " tokens, " << e.input.size()
                            << " values with the hash " << std::hex << hash_of(e.input);
                   },
                   [&](const Stocked & e) {
                       text << "stocked layer " << e.layer << ':' << listed(e.experts) << "; wanted"
                            << listed(e.wanted);
                   },
                   [&](const Kept & e) {
                       text << "kept layer " << e.layer << " expert " << e.expert << " slot " << e.slot;
                       text << (e.in_store ? " of the store" : "");
                   },
                   [&](const Predicted & e) {
                       text << "predicted layer " << e.forecast.layer << ':' << listed(std::span(e.forecast.experts))
                            << "; scores" << listed(std::span(e.forecast.scores));
                   },
                   [&](const Copied & e) { text << "copied " << e.ticket; },
                   [&](const Cancelled & e) { text << "cancelled " << e.ticket; },
                   [&](const Failed & e) { text << "failed " << e.ticket; },
                   [&](const Computed & e) {
                       text << "computed layer " << e.layer << " expert " << e.expert << name_of(e.part);
                   },
                   [&](const Withdrawn & e) {
                       text << "withdrawn from the host: layer " << e.layer << " expert " << e.expert;
                   },
                   [&](const CaughtUp & e) { text << "caught up after " << e.us << " us"; },
                   [&](const Aborted &) { text << "aborted"; },
                   [&](const Unasked & e) { text << "not asked, layer " << e.layer << ", " << e.n_token << " tokens"; },
               },
               event);
    return text.str();
}

std::string describe(const Command & command) {
    std::ostringstream text;
    std::visit(Overloaded{
                   [&](const Copy & c) {
                       text << "copy " << c.ticket << ": layer " << c.layer << " expert " << c.expert << name_of(c.part)
                            << " chunk " << c.chunk;
                       if (c.route == Route::host_to_slot) {
                           text << " from host slot " << c.from_slot;
                       }
                       text << " into " << (c.route == Route::file_to_host ? "host slot " : "slot ") << c.slot
                            << (c.urgency == Urgency::high  ? ", high"
                                : c.urgency == Urgency::low ? ", low"
                                                            : ", spare");
                   },
                   [&](const Cancel & c) { text << "cancel " << c.ticket; },
                   [&](const Order & c) { text << "order layer " << c.layer << ':' << listed(std::span(c.experts)); },
                   [&](const Compute & c) {
                       text << "compute layer " << c.layer << " expert " << c.expert << name_of(c.part);
                       c.slot == none ? text << " on the host" : text << " in slot " << c.slot;
                   },
                   [&](const Withdraw & c) { text << "withdraw layer " << c.layer << " expert " << c.expert; },
                   [&](const GiveUp & c) { text << "give up layer " << c.layer << " expert " << c.expert; },
               },
               command);
    return text.str();
}

}  // namespace outrider
