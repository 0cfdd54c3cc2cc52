#include "event_log.h"

#include <sstream>

namespace outrider {
namespace {

bool same(const Command & a, const Command & b) {
    if (a.index() != b.index()) {
        return false;
    }
    if (const auto * x = std::get_if<Copy>(&a)) {
        const auto & y = std::get<Copy>(b);
        return x->ticket == y.ticket && x->layer == y.layer && x->expert == y.expert && x->part == y.part &&
               x->chunk == y.chunk && x->slot == y.slot && x->urgency == y.urgency && x->route == y.route &&
               x->from_slot == y.from_slot;
    }
    if (const auto * x = std::get_if<Cancel>(&a)) {
        return x->ticket == std::get<Cancel>(b).ticket;
    }
    if (const auto * x = std::get_if<Order>(&a)) {
        return x->layer == std::get<Order>(b).layer && x->experts == std::get<Order>(b).experts;
    }
    if (const auto * x = std::get_if<Compute>(&a)) {
        const auto & y = std::get<Compute>(b);
        return x->layer == y.layer && x->expert == y.expert && x->part == y.part && x->slot == y.slot;
    }
    if (const auto * x = std::get_if<Withdraw>(&a)) {
        return x->layer == std::get<Withdraw>(b).layer && x->expert == std::get<Withdraw>(b).expert;
    }
    const auto & x = std::get<GiveUp>(a);
    const auto & y = std::get<GiveUp>(b);
    return x.layer == y.layer && x.expert == y.expert;
}

template <typename... Fs>
struct Overloaded : Fs... {
    using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

void tell(const Event & event, Core & core, Commands & out) {
    std::visit(Overloaded{
                   [&](const RequestBegan &) { core.request_began(); },
                   [&](const Tuned & e) { core.tune(e.tuning); },
                   [&](const Measured & e) { core.measured(e.speeds); },
                   [&](const PassBegan & e) { core.pass_began(e.phase, e.tokens, out); },
                   [&](const Routed & e) { core.routed({e.layer, e.n_token, e.ids, e.weights}, out); },
                   [&](const GateSeen & e) { core.gate_seen(e.layer, e.input, e.n_token, out); },
                   [&](const Predicted & e) { core.predicted(e.forecast, out); },
                   [&](const Copied & e) { core.copied(e.ticket, out); },
                   [&](const Cancelled & e) { core.cancelled(e.ticket, out); },
                   [&](const Failed & e) { core.failed(e.ticket, out); },
                   [&](const Computed & e) { core.computed(e.layer, e.expert, e.part, out); },
                   [&](const Withdrawn & e) { core.withdrawn(e.layer, e.expert, out); },
                   [&](const CaughtUp & e) { core.caught_up(e.us, out); },
                   [&](const Aborted &) { core.aborted(out); },
                   [&](const Unasked & e) { core.unasked(e.layer, e.n_token, out); },
               },
               event);
}

const char * name_of(Part part) { return part == Part::top ? "" : part == Part::bottom ? " (bottom)" : " (staged)"; }

template <typename T>
std::string listed(const std::vector<T> & values) {
    std::ostringstream text;
    for (const T & v : values) {
        text << ' ' << v;
    }
    return text.str();
}

}  // namespace

int64_t replay(const EventLog & log, Core & core) {
    Commands out;
    for (size_t i = 0; i < log.entries.size(); i++) {
        out.clear();
        tell(log.entries[i].event, core, out);
        const Commands & expected = log.entries[i].commands;
        if (out.size() != expected.size() || !std::equal(out.begin(), out.end(), expected.begin(),
                                                         [](const auto & a, const auto & b) { return same(a, b); })) {
            return int64_t(i);
        }
    }
    return -1;
}

std::string describe(const Event & event) {
    std::ostringstream text;
    std::visit(
        Overloaded{
            [&](const RequestBegan &) { text << "request began"; },
            [&](const Tuned & e) { text << "tuned: depth " << e.tuning.depth << ", eviction " << e.tuning.eviction; },
            [&](const Measured & e) {
                text << "measured:";
                for (const HostSpeeds & s : e.speeds) {
                    text << " link " << s.link_us_per_byte << ", host " << s.host_us_per_byte << " us a byte;";
                }
            },
            [&](const PassBegan & e) { text << "pass began, " << (e.phase == Phase::prefill ? "prefill" : "decode"); },
            [&](const Routed & e) { text << "routed layer " << e.layer << ':' << listed(e.ids); },
            [&](const GateSeen & e) { text << "gate seen, layer " << e.layer << ", " << e.n_token << " tokens"; },
            [&](const Predicted & e) {
                text << "predicted layer " << e.forecast.layer << ':' << listed(e.forecast.experts);
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
                            << (c.urgency == Urgency::high ? ", high" : ", low");
                   },
                   [&](const Cancel & c) { text << "cancel " << c.ticket; },
                   [&](const Order & c) { text << "order layer " << c.layer << ':' << listed(c.experts); },
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
