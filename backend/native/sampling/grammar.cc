#include "sampling/grammar.h"

#include <cmath>
#include <stdexcept>

namespace outrider {

Grammar::Grammar(const LlamaFunctions & llama, const llama_vocab * vocab, const std::string & text,
                 const std::vector<std::string> & patterns)
    : llama_(llama), vocab_(vocab) {
    std::vector<const char *> starts;
    for (const std::string & pattern : patterns) {
        starts.push_back(pattern.c_str());
    }
    grammar_ = patterns.empty()
                   ? llama_.init_grammar(vocab, text.c_str(), "root")
                   : llama_.init_lazy_grammar(vocab, text.c_str(), "root", starts.data(), starts.size(), nullptr, 0);
    if (grammar_ == nullptr) {
        throw std::runtime_error("the grammar does not parse");
    }
}

Grammar::~Grammar() { llama_.free(grammar_); }

// As llama.cpp's common_sampler_sample: sample first, and only if the token does not fit, sample
// again from the tokens that do. Testing one token takes microseconds, a vocabulary milliseconds.
llama_token Grammar::sample(llama_sampler * chain, llama_context * context, int32_t row, llama_token also) {
    llama_token token = choose(chain, context, row, nullptr);
    if (token != also && !allows(token)) {
        const std::vector<uint8_t> permitted = allowed();
        token = choose(chain, context, row, &permitted);
    }
    llama_.accept(chain, token);
    return token;
}

void Grammar::accept(llama_token token) {
    if (!allows(token)) {  // llama.cpp would abort at a token that ends the answer too early
        throw std::runtime_error("a token does not fit the grammar");
    }
    llama_.accept(grammar_, token);
}

bool Grammar::allows(llama_token token) {
    llama_token_data single{token, 1.0F, 0.0F};
    llama_token_data_array array{&single, 1, -1, false};
    llama_.apply(grammar_, &array);
    return single.logit != -INFINITY;
}

std::vector<uint8_t> Grammar::allowed() {
    const auto n_vocab = static_cast<size_t>(llama_.n_vocab(vocab_));
    candidates_.resize(n_vocab);
    for (size_t i = 0; i < n_vocab; ++i) {
        candidates_[i] = {static_cast<llama_token>(i), 1.0F, 0.0F};
    }
    llama_token_data_array array{candidates_.data(), n_vocab, -1, false};
    llama_.apply(grammar_, &array);
    std::vector<uint8_t> permitted(n_vocab);
    for (size_t i = 0; i < n_vocab; ++i) {
        permitted[i] = candidates_[i].logit != -INFINITY ? 1 : 0;
    }
    return permitted;
}

llama_token Grammar::choose(llama_sampler * chain, llama_context * context, int32_t row,
                            const std::vector<uint8_t> * permitted) {
    const float * logits = llama_.logits(context, row);
    const auto n_vocab = static_cast<size_t>(llama_.n_vocab(vocab_));
    candidates_.resize(n_vocab);
    size_t n_kept = 0;  // samplers need not see refused tokens
    for (size_t i = 0; i < n_vocab; ++i) {
        if (permitted == nullptr || (i < permitted->size() && (*permitted)[i] != 0)) {
            candidates_[n_kept++] = {static_cast<llama_token>(i), logits[i], 0.0F};
        }
    }
    if (n_kept == 0) {
        throw std::runtime_error("no token fits the grammar");
    }
    llama_token_data_array array{candidates_.data(), n_kept, -1, false};
    llama_.apply(chain, &array);
    if (array.selected < 0) {
        throw std::runtime_error("no token was chosen");
    }
    return array.data[array.selected].id;
}

}  // namespace outrider
