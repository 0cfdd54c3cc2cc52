// What backend/engine does with llama.cpp and the patch, without Python: live_check MODEL [METHOD ...] loads a model
// natively and cached, decodes greedily, stops some passes, and compares all logits bit by bit. `make wine-check` runs
// it under wine. The exit status is 0 if all are equal.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <shellapi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/allocate/registry.h"
#include "gguf.h"
#include "live/pass/patch.h"
#include "llama.h"

using namespace outrider;

namespace {

constexpr int n_thread = 2, n_token = 16, n_ubatch = 16;
constexpr double rate = 0.25;
const char * const expert_pattern = "blk\\.([0-9]+)\\.ffn_(gate|up|down|gate_up)_exps\\.weight";

struct Model {
    llama_model_tensor_buft_override overrides[2];  // llama.cpp keeps their address
    llama_model * m;
    Model(const std::string & path, ExpertBuffers & buffers)
        : overrides{{expert_pattern, buffers.type()}, {nullptr, nullptr}} {
        static ggml_backend_dev_t no_devices[] = {nullptr};
        auto p = llama_model_default_params();
        p.devices = no_devices;
        p.n_gpu_layers = 0;
        p.load_mode = LLAMA_LOAD_MODE_DIRECT_IO;
        p.use_extra_bufts = true;
        p.tensor_buft_overrides = overrides;
        m = llama_model_load_from_file(path.c_str(), p);
        if (!m) {
            throw std::runtime_error("the model was not loaded");
        }
    }
    ~Model() { llama_model_free(m); }
};

struct Context {
    llama_context * c;
    llama_batch batch;
    Context(const Model & model, Patch * patch, uint32_t n_batch) {
        auto p = llama_context_default_params();
        p.n_ctx = 256;
        p.n_batch = p.n_ubatch = n_batch;
        p.n_threads = p.n_threads_batch = n_thread;
        p.no_perf = true;
        if (patch) {
            p.cb_eval = &Patch::callback;
            p.cb_eval_user_data = patch;
        }
        c = llama_init_from_model(model.m, p);
        if (!c) {
            throw std::runtime_error("there is no context");
        }
        batch = llama_batch_init(int32_t(n_batch), 0, 1);
    }
    ~Context() {
        llama_batch_free(batch);
        llama_free(c);
    }
    int decode(const std::vector<llama_token> & tokens, int position, bool all) {
        batch.n_tokens = int32_t(tokens.size());
        for (size_t i = 0; i < tokens.size(); i++) {
            batch.token[i] = tokens[i];
            batch.pos[i] = position + int(i);
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = all || i + 1 == tokens.size();
        }
        return llama_decode(c, batch);
    }
};

// Answer a prompt. Return the logits of all tokens. With a patch, every eighth pass is stopped and computed again.
std::vector<float> answer(const Model & model, Patch * patch) {
    const llama_vocab * vocab = llama_model_get_vocab(model.m);
    const std::string text = "Tell me a story about a fox who found a small lantern in the wood.";
    std::vector<llama_token> prompt(256);
    prompt.resize(size_t(llama_tokenize(vocab, text.data(), int(text.size()), prompt.data(), 256, true, true)));
    Context context(model, patch, n_ubatch);
    std::vector<float> logits;
    int position = 0;
    if (patch) {
        patch->request_began();
    }
    const auto pass = [&](const std::vector<llama_token> & tokens, Phase phase) {
        if (patch) {
            patch->begin_pass(phase, {tokens.begin(), tokens.end()});
        }
        const int status = context.decode(tokens, position, false);
        return (!patch || patch->end_pass()) && status == 0;
    };
    const auto whole_pass = [&](const std::vector<llama_token> & tokens, Phase phase) {
        if (!pass(tokens, phase)) {
            throw std::runtime_error("a pass failed" + (patch ? ": " + patch->error() : ""));
        }
        position += int(tokens.size());
    };
    for (size_t at = 0; at < prompt.size(); at += n_ubatch) {
        const size_t end = std::min(at + n_ubatch, prompt.size());
        whole_pass({prompt.begin() + ptrdiff_t(at), prompt.begin() + ptrdiff_t(end)}, Phase::prefill);
    }
    for (int i = 0; i < n_token; i++) {
        const float * row = llama_get_logits_ith(context.c, -1);
        const float * end = row + llama_vocab_n_tokens(vocab);
        logits.insert(logits.end(), row, end);
        const auto best = llama_token(std::max_element(row, end) - row);
        if (patch && i % 8 == 7) {
            patch->stop();
            if (pass({best}, Phase::decode)) {
                throw std::runtime_error("a stopped pass was whole");
            }
            patch->resume();
            llama_memory_seq_rm(llama_get_memory(context.c), 0, position, -1);
        }
        whole_pass({best}, Phase::decode);
    }
    return logits;
}

// Return the places of the expert tensors, as backend/gguf reads them.
ExpertFiles::Places places_of(const std::string & path) {
    gguf_context * g = gguf_init_from_file(path.c_str(), {true, nullptr});
    if (!g) {
        throw std::runtime_error("the header was not read");
    }
    ExpertFiles::Places places;
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        const std::string name = gguf_get_tensor_name(g, i);
        if (name.find("_exps.weight") != name.npos) {
            places[name] = TensorPlace{0, gguf_get_data_offset(g) + gguf_get_tensor_offset(g, i)};
        }
    }
    gguf_free(g);
    return places;
}

Composition composition_of(const std::string & method, const Shape & shape) {
    Composition c{{}, {{"lru"}}, {"ordered", {{"fill", 1}}}, {"ordered", {{"fill", 1}}}};
    if (method == "lru") {
        c = {{}, {{"lru", {{"at_access", 1}}}}, {"reactive", {{"plain", 1}}}, {"reactive", {{"plain", 1}}}};
    } else if (method == "promoe") {  // its fallback predictor
        c.predictor = {"next_router"};
        c.depth = 2;
    } else if (method == "klotski") {
        c.predictor = {"correlation", {{"path_length", 1}}};
        c.evictions = {{"decayed"}};
        c.prefill = c.decode = {"expert_major", {{"n_stream", 8}, {"fill", 1}}};
        c.weighs = true;
    } else if (method == "moe-infinity") {
        c.predictor = {"eam"};
        c.evictions = {{"eam"}};
        c.n_predict = shape.n_expert;
        c.n_fetch = shape.n_expert_used;
        c.depth = 3;
    } else {
        throw std::runtime_error("there is no method " + method);
    }
    return c;
}

bool is_equal(const std::vector<float> & a, const std::vector<float> & b, const std::string & what) {
    const bool equal = a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    std::printf("%s: %zu logits %s\n", what.c_str(), b.size(), equal ? "are equal" : "DIFFER");
    return equal;
}

bool is_cached_equal(const std::string & path, const std::string & method, const std::vector<float> & wanted) {
    ExpertBuffers buffers(true);
    const ExpertFiles files({path}, places_of(path));
    std::unique_ptr<Patch> patch;
    const Model model(path, buffers);
    buffers.loaded();
    patch = std::make_unique<Patch>(files, buffers);
    patch->begin_probe();
    {
        Context probe(model, patch.get(), 8);
        int position = 0;
        for (const int n : {1, 2}) {
            patch->begin_pass(Phase::prefill, {});
            probe.decode(std::vector<llama_token>(size_t(n), 0), position, true);
            position += n;
            if (!patch->end_pass()) {
                throw std::runtime_error("the probe failed: " + patch->error());
            }
        }
        if (const std::string objection = patch->end_probe(); !objection.empty()) {
            throw std::runtime_error(objection);
        }
    }
    PatchOptions options;
    options.n_thread = n_thread;
    options.max_token = n_ubatch;
    bool equal = true;
    for (const int n_read : {2, 4, 0}) {
        options.n_transfer_thread = n_read;
        const Spec allocation{method == "moe-infinity" ? "one_pool" : "uniform"};
        patch->configure(allocate(allocation, patch->shape(), rate), composition_of(method, patch->shape()), options);
        equal &= is_equal(wanted, answer(model, patch.get()), method + " with " + std::to_string(n_read) + " readers");
        for (uint64_t i = 0; i < 40; i++) {
            equal &= !patch->find_wrong_slot(i * 7).has_value();
        }
    }
    patch->close();
    return equal;
}

}  // namespace

int main() {
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    int n = 0;
    wchar_t ** wide = ::CommandLineToArgvW(::GetCommandLineW(), &n);
    std::vector<std::string> arguments;  // in UTF-8, as Python passes paths
    for (int i = 1; i < n; i++) {
        const auto text = std::filesystem::path(wide[i]).u8string();
        arguments.emplace_back(text.begin(), text.end());
    }
    if (arguments.empty()) {
        std::fprintf(stderr, "live_check MODEL [METHOD ...]\n");
        return 2;
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    try {
        std::vector<float> native;
        {
            ExpertBuffers buffers(false);  // llama.cpp's loader fills reserved memory
            native = answer(Model(arguments[0], buffers), nullptr);
        }
        bool equal = true;
        for (size_t i = 1; i < arguments.size(); i++) {
            equal &= is_cached_equal(arguments[0], arguments[i], native);
        }
        return equal ? 0 : 1;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
