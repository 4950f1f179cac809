// Documented behaviours of OpenAI's API, as its official client for Node.js shows them. Prints one JSON object:
// {"held": number, "failed": {name: message}}. The address and the token are in the environment.

import assert from "node:assert/strict";
import OpenAI, { APIError, AuthenticationError, BadRequestError, NotFoundError } from "openai";

const client = new OpenAI({ baseURL: process.env.TREADLE_URL, apiKey: process.env.TREADLE_TOKEN, maxRetries: 0 });
const MODEL = "default";
const PICTURE =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PARAMETERS = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const FUNCTION = { name: "weather", description: "Tell the weather.", parameters: PARAMETERS };
const CHAT_TOOLS = [{ type: "function", function: FUNCTION }];
const TOOLS = [{ type: "function", strict: false, ...FUNCTION }];
const GO = [{ role: "user", content: "Say something." }];
const CALL_IT = [{ role: "user", content: "call weather" }];
const ARGUMENTS = '{"city": "Ulm"}';

const complete = (more = {}) => client.chat.completions.create({ model: MODEL, messages: GO, ...more });
const respond = (more = {}) => client.responses.create({ model: MODEL, input: "Say something.", ...more });
const contentOf = (made) => made.choices[0].message.content;
const collect = async (stream) => {
  const found = [];
  for await (const each of stream) found.push(each);
  return found;
};
const accepts = (more, content = "Fine.") => async () => assert.equal(contentOf(await complete(more)), content);
const echoes = (more, read, expected) => async () => assert.deepEqual(read(await respond(more)), expected);
const refuses = (kind, make, check = () => {}) => () =>
  assert.rejects(make, (error) => {
    assert.ok(error instanceof kind, String(error));
    check(error);
    return true;
  });
const callTwice = [{ role: "user", content: "call weather twice" }];
const textParts = [{ type: "text", text: "Say" }, { type: "text", text: " something." }];

const behaviours = {
  // Models
  "models are listed": async () => assert.ok((await client.models.list()).data.some(({ id }) => id === MODEL)),
  "models can be iterated": async () => assert.ok((await collect(client.models.list())).length > 0),
  "a model is retrieved": async () => assert.equal((await client.models.retrieve(MODEL)).object, "model"),
  "an unknown model is not found": refuses(NotFoundError, () => client.models.retrieve("nobody")),
  // Chat completions
  "a completion has a choice": async () => {
    const made = await complete();
    assert.equal(made.object, "chat.completion");
    assert.equal(made.choices[0].finish_reason, "stop");
    assert.equal(made.choices[0].message.role, "assistant");
  },
  "a completion has an id of its own": async () => assert.notEqual((await complete()).id, (await complete()).id),
  "a completion has usage": async () => {
    const { usage } = await complete();
    assert.equal(usage.prompt_tokens + usage.completion_tokens, usage.total_tokens);
  },
  "a system message is accepted": accepts({ messages: [{ role: "system", content: "Be kind." }, ...GO] }),
  "a developer message is accepted": accepts({ messages: [{ role: "developer", content: "Be kind." }, ...GO] }),
  "content parts are accepted": accepts({ messages: [{ role: "user", content: textParts }] }),
  "an image is accepted": accepts({
    messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: PICTURE } }] }],
  }),
  "several turns are accepted": accepts({ messages: [...GO, { role: "assistant", content: "Fine." }, ...GO] }),
  "max_tokens is accepted": accepts({ max_tokens: 50 }),
  "max_completion_tokens is accepted": accepts({ max_completion_tokens: 50 }),
  "temperature is accepted": accepts({ temperature: 0 }),
  "top_p is accepted": accepts({ top_p: 0.5 }),
  "seed is accepted": accepts({ seed: 7 }),
  "logit_bias is accepted": accepts({ logit_bias: { 1: 1 } }),
  "penalties are accepted": accepts({ frequency_penalty: 0.5, presence_penalty: 0.5 }),
  "a stop text ends the answer": accepts({ stop: "ne" }, "Fi"),
  "several stop texts are accepted": accepts({ stop: ["zzz", "i"] }, "F"),
  "reasoning_effort is accepted": accepts({ reasoning_effort: "low" }),
  "metadata is accepted": accepts({ metadata: { a: "b" } }),
  "logprobs are accepted without effect": accepts({ logprobs: true, top_logprobs: 2 }),
  "service_tier is accepted without effect": accepts({ service_tier: "auto" }),
  "store is accepted without effect": accepts({ store: false }),
  "parameters without effect are named": async () => {
    const { response } = await complete({ logprobs: true }).withResponse();
    assert.equal(response.headers.get("x-treadle-ignored"), "logprobs");
  },
  "a stream has deltas": async () => {
    const chunks = await collect(await complete({ stream: true }));
    assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), "Fine.");
    assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
  },
  "a stream has usage on request": async () => {
    const chunks = await collect(await complete({ stream: true, stream_options: { include_usage: true } }));
    assert.ok(chunks.at(-1).usage.total_tokens > 0);
  },
  "the stream helper of chat returns the whole": async () => {
    const stream = client.chat.completions.stream({ model: MODEL, messages: GO });
    assert.equal(await stream.finalContent(), "Fine.");
  },
  "a stream can be aborted": async () => {
    const stream = await complete({ stream: true });
    for await (const _ of stream) break;
    assert.ok(stream.controller.signal.aborted);
  },
  "a JSON schema is followed": accepts(
    {
      messages: [{ role: "user", content: "json" }],
      response_format: {
        type: "json_schema",
        json_schema: { name: "point", schema: { type: "object", properties: { x: { type: "integer" } } } },
      },
    },
    '{"x": 1}',
  ),
  "a JSON object is returned": accepts(
    { messages: [{ role: "user", content: "json" }], response_format: { type: "json_object" } },
    '{"x": 1}',
  ),
  "a tool is called": async () => {
    const [choice] = (await complete({ messages: CALL_IT, tools: CHAT_TOOLS })).choices;
    assert.equal(choice.finish_reason, "tool_calls");
    assert.equal(choice.message.tool_calls[0].function.arguments, ARGUMENTS);
  },
  "a tool result is answered": async () => {
    const { message } = (await complete({ messages: CALL_IT, tools: CHAT_TOOLS })).choices[0];
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sun" };
    const made = await complete({ messages: [...CALL_IT, message, result], tools: CHAT_TOOLS });
    assert.equal(contentOf(made), "It is sun.");
  },
  "parallel calls are answered": async () => {
    const { message } = (await complete({ messages: callTwice, tools: CHAT_TOOLS })).choices[0];
    assert.equal(new Set(message.tool_calls.map(({ id }) => id)).size, 2);
    const results = message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "sun" }));
    assert.ok(contentOf(await complete({ messages: [...callTwice, message, ...results], tools: CHAT_TOOLS })));
  },
  "a call is streamed": async () => {
    const chunks = await collect(await complete({ messages: CALL_IT, tools: CHAT_TOOLS, stream: true }));
    const deltas = chunks.flatMap((chunk) => chunk.choices[0].delta.tool_calls ?? []);
    assert.equal(deltas.map((delta) => delta.function.arguments ?? "").join(""), ARGUMENTS);
    assert.equal(chunks.at(-1).choices[0].finish_reason, "tool_calls");
  },
  "runTools runs the tools": async () => {
    const run = (input) => {
      assert.deepEqual(input, { city: "Ulm" });
      return "sun";
    };
    const tool = { type: "function", function: { ...FUNCTION, parse: JSON.parse, function: run } };
    const runner = client.chat.completions.runTools({ model: MODEL, messages: CALL_IT, tools: [tool] });
    assert.equal(await runner.finalContent(), "It is sun.");
  },
  "tool_choice none calls nothing": accepts({ tools: CHAT_TOOLS, tool_choice: "none" }),
  "tool_choice required is accepted": async () =>
    assert.ok(
      (await complete({ messages: CALL_IT, tools: CHAT_TOOLS, tool_choice: "required" })).choices[0].message.tool_calls,
    ),
  "tool_choice of one function is accepted": async () => {
    const tool_choice = { type: "function", function: { name: "weather" } };
    const made = await complete({ messages: CALL_IT, tools: CHAT_TOOLS, tool_choice });
    assert.equal(made.choices[0].message.tool_calls.length, 1);
  },
  "a custom tool is called": async () => {
    const tools = [{ type: "custom", custom: { name: "weather" } }];
    const { message } = (await complete({ messages: CALL_IT, tools })).choices[0];
    assert.equal(message.tool_calls[0].custom.input, "Ulm");
  },
  // Responses
  "a response has text": echoes({}, (made) => made.output_text, "Fine."),
  "a response is completed": echoes({}, (made) => [made.status, made.error], ["completed", null]),
  "a response has usage": async () => {
    const { usage } = await respond();
    assert.equal(usage.input_tokens + usage.output_tokens, usage.total_tokens);
  },
  "an output message has content": echoes({}, (made) => made.output[0].content[0].type, "output_text"),
  "instructions are returned": echoes({ instructions: "Be kind." }, (made) => made.instructions, "Be kind."),
  "metadata is returned": echoes({ metadata: { a: "b" } }, (made) => made.metadata, { a: "b" }),
  "temperature is returned": echoes({ temperature: 0.3 }, (made) => made.temperature, 0.3),
  "top_p is returned": echoes({ top_p: 0.7 }, (made) => made.top_p, 0.7),
  "max_output_tokens is returned": echoes({ max_output_tokens: 50 }, (made) => made.max_output_tokens, 50),
  "reasoning is returned": echoes({ reasoning: { effort: "low" } }, (made) => made.reasoning.effort, "low"),
  "input items are accepted": echoes({ input: GO }, (made) => made.output_text, "Fine."),
  "an input image is accepted": echoes(
    { input: [{ role: "user", content: [{ type: "input_image", image_url: PICTURE, detail: "auto" }] }] },
    (made) => made.output_text,
    "Fine.",
  ),
  "the output can be sent as input": async () => {
    const { output } = await respond();
    assert.ok((await respond({ input: [...GO, ...output, ...GO] })).output_text);
  },
  "a response continues the previous one": async () => {
    const first = await respond();
    const second = await respond({ previous_response_id: first.id });
    assert.equal(second.previous_response_id, first.id);
  },
  "a conversation is continued": async () => {
    const { conversation } = await respond();
    assert.deepEqual((await respond({ conversation: conversation.id })).conversation, conversation);
  },
  "a response is retrieved": async () => {
    const made = await respond();
    assert.deepEqual((await client.responses.retrieve(made.id)).output, made.output);
  },
  "a background response is polled": async () => {
    let made = await respond({ background: true });
    while (["queued", "in_progress"].includes(made.status)) made = await client.responses.retrieve(made.id);
    assert.equal(made.output_text, "Fine.");
  },
  "a response that has ended is not cancelled": async () =>
    assert.equal((await client.responses.cancel((await respond()).id)).status, "completed"),
  "input items are listed": async () => {
    const items = await collect(client.responses.inputItems.list((await respond()).id));
    assert.equal(items[0].content[0].text, "Say something.");
  },
  "an unstored response is not found": async () => {
    const { id } = await respond({ store: false });
    await assert.rejects(() => client.responses.retrieve(id), NotFoundError);
  },
  "a stream of events ends with the response": async () => {
    const events = await collect(await respond({ stream: true }));
    assert.equal(events.at(-1).type, "response.completed");
    const deltas = events.filter(({ type }) => type === "response.output_text.delta");
    assert.equal(deltas.map(({ delta }) => delta).join(""), "Fine.");
  },
  "the stream helper of responses returns the whole": async () => {
    const stream = client.responses.stream({ model: MODEL, input: "Say something." });
    assert.equal((await stream.finalResponse()).output_text, "Fine.");
  },
  "a stream is continued after an event": async () => {
    const events = await collect(await respond({ stream: true }));
    const { id } = events.at(-1).response;
    const rest = await client.responses.retrieve(id, { stream: true, starting_after: events[1].sequence_number });
    assert.deepEqual(
      (await collect(rest)).map(({ sequence_number }) => sequence_number),
      events.slice(2).map(({ sequence_number }) => sequence_number),
    );
  },
  "a function call is an item": async () => {
    const { output } = await respond({ input: "call weather", tools: TOOLS });
    assert.deepEqual([output[0].type, output[0].arguments], ["function_call", ARGUMENTS]);
  },
  "a function call output is answered": async () => {
    const first = await respond({ input: "call weather", tools: TOOLS });
    const input = [{ type: "function_call_output", call_id: first.output[0].call_id, output: "sun" }];
    assert.equal((await respond({ input, previous_response_id: first.id, tools: TOOLS })).output_text, "It is sun.");
  },
  "a function call is streamed": async () => {
    const events = await collect(await respond({ input: "call weather", tools: TOOLS, stream: true }));
    const deltas = events.filter(({ type }) => type === "response.function_call_arguments.delta");
    assert.equal(deltas.map(({ delta }) => delta).join(""), ARGUMENTS);
  },
  "allowed tools are accepted": async () => {
    const tool_choice = { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "weather" }] };
    assert.equal((await respond({ input: "call weather", tools: TOOLS, tool_choice })).output[0].name, "weather");
  },
  // Errors and transport
  "a wrong key is an authentication error": refuses(AuthenticationError, () =>
    client.withOptions({ apiKey: "trd_wrong" }).models.list(),
  ),
  "an unknown agent is not found": refuses(
    NotFoundError,
    () => complete({ model: "nobody" }),
    ({ code }) => assert.equal(code, "model_not_found"),
  ),
  "several answers are a bad request": refuses(
    BadRequestError,
    () => complete({ n: 2 }),
    ({ param }) => assert.equal(param, "n"),
  ),
  "an empty conversation is a bad request": refuses(BadRequestError, () => complete({ messages: [] })),
  "an unknown response is not found": refuses(NotFoundError, () => client.responses.retrieve("resp_run_none")),
  "embeddings are not found": refuses(NotFoundError, () => client.embeddings.create({ model: MODEL, input: "x" })),
  "an error is an APIError with a type": refuses(
    APIError,
    () => complete({ temperature: 9 }),
    ({ type }) => assert.equal(type, "invalid_request_error"),
  ),
  "a raw response has headers": async () => {
    const response = await complete().asResponse();
    assert.match(response.headers.get("x-treadle-session"), /^ses_/);
  },
  "a key makes a request idempotent": async () => {
    const headers = { "Idempotency-Key": "node" };
    const make = () => client.responses.create({ model: MODEL, input: "Say something." }, { headers });
    assert.equal((await make()).id, (await make()).id);
  },
  "requests run at the same time": async () => {
    const made = await Promise.all([1, 2, 3].map(() => complete()));
    assert.equal(new Set(made.map(({ id }) => id)).size, 3);
  },
};

const failed = {};
for (const [name, check] of Object.entries(behaviours)) {
  try {
    await check();
  } catch (error) {
    failed[name] = `${error.name}: ${error.message}`;
  }
}
console.log(JSON.stringify({ held: Object.keys(behaviours).length - Object.keys(failed).length, failed }));
