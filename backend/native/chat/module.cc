// Python's view of llama.cpp's chat layer. All arguments and results are JSON in text, because the only caller,
// backend/llama/format_child.py, receives and sends JSON.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat-peg-parser.h"
#include "chat.h"
#include "common.h"
#include "json.h"
#include "log.h"

namespace nb = nanobind;
using json = common_json;

namespace {

const char * kind_of(common_grammar_trigger_type type) {
    switch (type) {
        case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN: return "token";
        case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: return "word";
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN: return "pattern";
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: return "pattern_full";
    }
    return "";
}

std::string text_of(const json & object, const char * name) { return object.value(name, std::string()); }

bool flag_of(const json & object, const char * name) { return object.value(name, false); }

json triggers_of(const common_chat_params & params) {
    json triggers = json::array();
    for (const common_grammar_trigger & trigger : params.grammar_triggers)
        triggers.push_back(json::array({kind_of(trigger.type), trigger.value}));
    return triggers;
}

// Counts the rounds of the loops in whose body it stands.
struct RoundCounter : jinja::statement {
    explicit RoundCounter(size_t & count) : count_(&count) { pos = 0; }
    jinja::value execute_impl(jinja::context &) const override {
        ++*count_;
        return jinja::mk_val<jinja::value_undefined>();
    }

  private:
    size_t * count_;
};

// Calls `found` with each loop of a template, however deep.
void visit_loops(const jinja::program & program, const std::function<void(jinja::for_statement &)> & found) {
    jinja::context walk;
    walk.visitor = [&](bool, const jinja::statement * node, std::vector<jinja::visitor_pair> children) {
        for (const auto & [label, statements] : children)
            for (const jinja::statement * child : statements)
                if (child != nullptr) child->visit(walk);
        if (auto * loop = dynamic_cast<const jinja::for_statement *>(node))
            found(const_cast<jinja::for_statement &>(*loop));
    };
    for (const auto & statement : program.body) statement->visit(walk);
}

// A chat template.
class Template {
  public:
    // Throws std::exception where the template cannot be parsed.
    Template(const std::string & source, const std::string & bos, const std::string & eos)
        : source_(source), bos_(bos), eos_(eos), program_(parsed(source)) {
        // The program is parsed first, because this call would hide the error.
        templates_ = common_chat_templates_init(nullptr, source, bos, eos);
    }

    std::map<std::string, bool> caps() const { return common_chat_templates_get_caps(templates_.get()); }

    // request: messages and tools in OpenAI's form, tool_choice, parallel_tool_calls, json_schema and grammar in text,
    // thinking, variables (name -> JSON in text), continues, plain: only the prompt is wanted, without what llama.cpp
    // finds out about thoughts and calls. Throws std::exception.
    std::string render(const std::string & request) const {
        const json asked = json::parse(request);
        common_chat_templates_inputs inputs;
        inputs.messages = common_chat_msgs_parse_oaicompat(asked.at("messages"));
        inputs.tools = common_chat_tools_parse_oaicompat(asked.at("tools"));
        inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(text_of(asked, "tool_choice"));
        inputs.parallel_tool_calls = flag_of(asked, "parallel_tool_calls");
        inputs.json_schema = text_of(asked, "json_schema");
        inputs.grammar = text_of(asked, "grammar");
        inputs.enable_thinking = flag_of(asked, "thinking");
        inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
        for (const auto & [name, value] : asked.at("variables").items())
            inputs.chat_template_kwargs[name] = value.dump();
        if (flag_of(asked, "continues")) inputs.continue_final_message = COMMON_CHAT_CONTINUATION_AUTO;

        inputs.force_pure_content = flag_of(asked, "plain");

        const common_chat_params params = applied(inputs);
        return json{
            {"prompt", params.prompt},
            {"generation_prompt", params.generation_prompt},
            {"grammar", params.grammar},
            {"grammar_lazy", params.grammar_lazy},
            {"triggers", triggers_of(params)},
            {"preserved", params.preserved_tokens},
            {"stops", params.additional_stops},
            {"format", int(params.format)},
            {"parser", params.parser},
            {"supports_thinking", params.supports_thinking},
            {"thinking_start", params.thinking_start_tag},
            {"thinking_ends", params.thinking_end_tags},
        }
            .dump_safe();
    }

    // Renders messages with just these variables, where render() adds enable_thinking. Throws std::exception.
    std::string render_plain(const std::string & request) const {
        jinja::context context = context_of(request);
        jinja::runtime runtime(context);
        return jinja::runtime::gather_string_parts(runtime.execute(program_))->as_string().str();
    }

    // Returns the rounds of all loops of the template while it renders. Throws std::exception.
    size_t count_rounds(const std::string & request) const {
        size_t count = 0;
        const jinja::program program = parsed(source_);
        visit_loops(program, [&](jinja::for_statement & loop) {
            loop.body.insert(loop.body.begin(), std::make_unique<RoundCounter>(count));
        });
        jinja::context context = context_of(request);
        jinja::runtime(context).execute(program);
        return count;
    }

  private:
    static jinja::program parsed(const std::string & source) {
        jinja::lexer lexer;
        return jinja::parse_from_tokens(lexer.tokenize(source));
    }

    jinja::context context_of(const std::string & request) const {
        const json asked = json::parse(request);
        json variables = asked.at("variables");
        variables["messages"] = asked.at("messages");
        variables["add_generation_prompt"] = true;
        variables["bos_token"] = bos_;
        variables["eos_token"] = eos_;
        jinja::context context;
        jinja::global_from_json(context, variables, false);
        return context;
    }

    common_chat_params applied(common_chat_templates_inputs & inputs) const {
        try {
            return common_chat_templates_apply(templates_.get(), inputs);
        } catch (const std::exception &) {
            if (inputs.force_pure_content) throw;
            inputs.force_pure_content = true;  // without finding out how it marks thoughts and calls
            return common_chat_templates_apply(templates_.get(), inputs);
        }
    }

    std::string source_, bos_, eos_;
    jinja::program program_;
    common_chat_templates_ptr templates_;
};

// Reads answers to one rendered prompt.
class Parser {
  public:
    // The fields of the same names that Template::render() returned.
    Parser(int format, const std::string & generation_prompt, const std::string & parser)
        : format_(static_cast<common_chat_format>(format)), opened_(generation_prompt) {
        if (parser.empty())
            arena_ = build_chat_peg_parser([](common_chat_peg_builder & p) { return p.content(p.rest()) + p.end(); });
        else
            arena_.load(parser);
    }

    // Returns the parts of an answer so far, as JSON: reasoning, content, tool_calls; n_read, the characters that
    // have the template's form, or -1 where the answer has not (all else is empty then, but for n_text); n_text, the
    // characters to the end of the text before the first call; is_whole: nothing has to follow; has_call: a whole
    // call is in it; call: where the first call begins and ends, if it is whole and says so; ends_in_text: text
    // follows a call.
    std::string parse(const std::string & text) const {
        const std::string input = opened_ + text;
        common_peg_parse_context context(input, COMMON_PEG_PARSE_FLAG_LENIENT);
        const common_peg_parse_result result = arena_.parse(context);
        common_chat_msg message;
        Places places{opened_.size(), opened_.size()};
        if (result.fail()) {
            for (common_peg_ast_id id = 0; id < context.ast.size(); ++id) places.add(context.ast.get(id));
        } else {
            mapper_of(message)->from_ast(context.ast, result);
            context.ast.visit(result, [&](const common_peg_ast_node & node) { places.add(node); });
        }
        json calls = json::array();
        for (const common_chat_tool_call & call : message.tool_calls)
            calls.push_back(json::array({call.id, call.name, call.arguments}));
        return json{
            {"reasoning", message.reasoning_content},
            {"content", message.content},
            {"tool_calls", calls},
            {"n_read", result.fail() ? -1 : count(input, opened_.size(), result.success() ? result.end : input.size())},
            {"n_text", count(input, opened_.size(), places.text)},
            {"is_whole", result.success()},
            {"has_call", places.has_whole_call || (result.success() && !calls.empty())},
            {"ends_in_text", places.ends_in_text},
            {"call", places.call_end == 0 ? json()
                                          : json::array({count(input, opened_.size(), places.call_begin),
                                                         count(input, opened_.size(), places.call_end)})},
        }
            .dump_safe();
    }

  private:
    // Where text and calls stand in an answer.
    struct Places {
        size_t begin, text;  // the answer's beginning, and the end of the text before the first call
        size_t call_begin = 0, call_end = 0;  // of the first call; its end is 0 until it is whole
        bool has_call = false, has_whole_call = false, ends_in_text = false;

        void add(const common_peg_ast_node & node) {
            const bool is_text =
                node.tag == common_chat_peg_builder::CONTENT || node.tag == common_chat_peg_builder::REASONING;
            if (node.tag == common_chat_peg_builder::TOOL && !has_call && !node.is_partial)
                call_begin = node.start, call_end = node.end;
            if (node.tag == common_chat_peg_builder::TOOL_OPEN && !has_call && call_end == 0) call_begin = node.start;
            if (node.tag == common_chat_peg_builder::TOOL_CLOSE && call_end == 0) call_end = node.end;
            if (node.tag == common_chat_peg_builder::TOOL_OPEN) has_call = true;
            if (node.tag == common_chat_peg_builder::TOOL_CLOSE) has_whole_call = true;
            if (is_text && !has_call) text = std::max(begin, node.end);
            if (is_text && has_call) ends_in_text |= node.text.find_first_not_of(" \t\r\n") != std::string_view::npos;
        }
    };

    // Returns the characters between two places of a text in UTF-8.
    static int64_t count(const std::string & text, size_t from, size_t to) {
        const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
        if (to <= from) return 0;
        return std::count_if(text.begin() + std::ptrdiff_t(from), text.begin() + std::ptrdiff_t(to), begins);
    }

    // As common_chat_parse(), which does not say how far it read.
    std::unique_ptr<common_chat_peg_mapper> mapper_of(common_chat_msg & message) const {
        if (format_ == COMMON_CHAT_FORMAT_PEG_GEMMA4) return std::make_unique<common_chat_peg_gemma4_mapper>(message);
        if (format_ == COMMON_CHAT_FORMAT_PEG_MINIMAX_M3)
            return std::make_unique<common_chat_peg_minimax_m3_mapper>(message);
        return std::make_unique<common_chat_peg_mapper>(message);
    }

    common_chat_format format_;
    std::string opened_;
    common_peg_arena arena_;
};

}  // namespace

NB_MODULE(_chat, m) {
    nb::set_leak_warnings(false);  // objects that live in a module at exit are no leak
    m.doc() = "llama.cpp's chat layer.";
    common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT - 1);  // its messages are of no use to users
    nb::class_<Template>(m, "Template")
        .def(nb::init<const std::string &, const std::string &, const std::string &>(), nb::arg("source"),
             nb::arg("bos"), nb::arg("eos"))
        .def("caps", &Template::caps)
        .def("render", &Template::render, nb::arg("request"))
        .def("render_plain", &Template::render_plain, nb::arg("request"))
        .def("count_rounds", &Template::count_rounds, nb::arg("request"));
    nb::class_<Parser>(m, "Parser")
        .def(nb::init<int, const std::string &, const std::string &>(), nb::arg("format"), nb::arg("generation_prompt"),
             nb::arg("parser"))
        .def("parse", &Parser::parse, nb::arg("text"));
}
