// Sampling under a grammar.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "sampling/grammar.h"

#include "bindings/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {

namespace {

template <typename F>
void read(const nb::dict & addresses, const char * name, F & function) {
    function = reinterpret_cast<F>(nb::cast<uintptr_t>(addresses[name]));
}

LlamaFunctions functions(const nb::dict & addresses) {
    LlamaFunctions llama{};
    read(addresses, "llama_sampler_init_grammar", llama.init_grammar);
    read(addresses, "llama_sampler_init_grammar_lazy_patterns", llama.init_lazy_grammar);
    read(addresses, "llama_sampler_apply", llama.apply);
    read(addresses, "llama_sampler_accept", llama.accept);
    read(addresses, "llama_sampler_free", llama.free);
    read(addresses, "llama_get_logits_ith", llama.logits);
    read(addresses, "llama_vocab_n_tokens", llama.n_vocab);
    return llama;
}

}  // namespace

void bind_sampling(nb::module_ & m) {
    nb::class_<Grammar>(m, "Grammar", "A grammar in GBNF, and the tokens accepted so far.")
        .def(
            "__init__",
            [](Grammar * self, const nb::dict & addresses, uintptr_t vocab, const std::string & text,
               const std::vector<std::string> & patterns) {
                new (self) Grammar(functions(addresses), reinterpret_cast<const llama_vocab *>(vocab), text, patterns);
            },
            "addresses"_a, "vocab"_a, "text"_a, "patterns"_a,
            "addresses: of llama.cpp's functions, by name. patterns: of a lazy grammar; see grammar.h.")
        .def(
            "sample",
            [](Grammar & self, uintptr_t chain, uintptr_t context, int32_t row, int also) {
                return self.sample(reinterpret_cast<llama_sampler *>(chain), reinterpret_cast<llama_context *>(context),
                                   row, also);
            },
            "chain"_a, "context"_a, "row"_a, "also"_a,
            "Choose a token from the logits of a row of the last pass, and accept it in the chain.")
        .def("accept", &Grammar::accept, "token"_a, "Advance the grammar by a token of the text.")
        .def("allows", &Grammar::allows, "token"_a, "Return whether a token may come next.")
        .def(
            "allowed",
            [](Grammar & self) {
                const std::vector<uint8_t> permitted = self.allowed();
                return nb::bytes(permitted.data(), permitted.size());
            },
            "Return a byte for every token of the vocabulary: whether it may come next.")
        .def(
            "choose",
            [](Grammar & self, uintptr_t chain, uintptr_t context, int32_t row, const nb::bytes & permitted) {
                const auto * data = static_cast<const uint8_t *>(permitted.data());
                const std::vector<uint8_t> tokens(data, data + permitted.size());
                return self.choose(reinterpret_cast<llama_sampler *>(chain), reinterpret_cast<llama_context *>(context),
                                   row, tokens.empty() ? nullptr : &tokens);
            },
            "chain"_a, "context"_a, "row"_a, "permitted"_a,
            "Choose a token without accepting it: of those with a byte that is not 0, or of all if there is none.");
}

}  // namespace outrider
