// Choose tokens under a grammar. llama.cpp's grammars throw C++ exceptions, which ctypes would turn
// into the end of the process; nanobind turns them into Python's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llama.h"

namespace outrider {

// The functions of llama.cpp that are called here.
struct LlamaFunctions {
    decltype(&::llama_sampler_init_grammar) init_grammar;
    decltype(&::llama_sampler_init_grammar_lazy_patterns) init_lazy_grammar;
    decltype(&::llama_sampler_apply) apply;
    decltype(&::llama_sampler_accept) accept;
    decltype(&::llama_sampler_free) free;
    decltype(&::llama_get_logits_ith) logits;
    decltype(&::llama_vocab_n_tokens) n_vocab;
};

// A grammar in GBNF with the rule "root", and the tokens accepted so far.
class Grammar {
  public:
    // patterns: regular expressions in ECMAScript; a lazy grammar constrains from the first match on,
    // and without patterns from the first token on. Throws std::exception if the grammar or a pattern does not parse.
    Grammar(const LlamaFunctions & llama, const llama_vocab * vocab, const std::string & text,
            const std::vector<std::string> & patterns);
    ~Grammar();
    Grammar(const Grammar &) = delete;
    Grammar & operator=(const Grammar &) = delete;

    // Choose a token with the samplers of `chain` from the logits of a row of the last pass, -1: its last ones, and
    // accept it in the chain.
    // The token `also` may be chosen although it does not fit. Throws std::runtime_error where no token fits.
    llama_token sample(llama_sampler * chain, llama_context * context, int32_t row, llama_token also);

    // Advance the grammar by a token of the text. Throws std::runtime_error if it does not fit.
    void accept(llama_token token);

    // Return whether a token may come next.
    bool allows(llama_token token);

    // Return for every token of the vocabulary whether it may come next.
    std::vector<uint8_t> allowed();

    // Choose a token as sample() does, without accepting it: any one, or one of those that are not 0 in `permitted`.
    // Throws std::runtime_error where there is none.
    llama_token choose(llama_sampler * chain, llama_context * context, int32_t row,
                       const std::vector<uint8_t> * permitted);

  private:
    LlamaFunctions llama_;
    const llama_vocab * vocab_;
    llama_sampler * grammar_;
    std::vector<llama_token_data> candidates_;
};

}  // namespace outrider
