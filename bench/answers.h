/* What the upstream says, in both wire formats. Written with ' for ", and with three places to fill in:
 * $n the input tokens, $t text of the size asked for, $m the mark of an event. */
#pragma once

struct shape {
    const char *json;                  /* an answer in one piece */
    const char *first, *event, *last;  /* a stream: its opening, each event, its end */
};

#define CHUNK \
    "data: {'id':'chatcmpl-bench','object':'chat.completion.chunk','created':1700000000,'model':'bench'," \
    "'choices':[{'index':0,"
#define USAGE "'usage':{'prompt_tokens':$n,'completion_tokens':100,'total_tokens':$n}"

static const struct shape CHAT = {
    .json = "{'id':'chatcmpl-bench','object':'chat.completion','created':1700000000,'model':'bench','choices':["
            "{'index':0,'message':{'role':'assistant','content':'$t'},'finish_reason':'stop'}]," USAGE "}",
    .first = CHUNK "'delta':{'role':'assistant','content':''},'finish_reason':null}]}\n\n",
    .event = CHUNK "'delta':{'content':'$m$t'},'finish_reason':null}]}\n\n",
    .last = CHUNK "'delta':{},'finish_reason':'stop'}]," USAGE "}\n\ndata: [DONE]\n\n",
};

static const struct shape ANTHROPIC = {
    .json = "{'id':'msg_bench','type':'message','role':'assistant','model':'bench',"
            "'content':[{'type':'text','text':'$t'}],'stop_reason':'end_turn','stop_sequence':null,"
            "'usage':{'input_tokens':$n,'output_tokens':100}}",
    .first = "event: message_start\n"
             "data: {'type':'message_start','message':{'id':'msg_bench','type':'message','role':'assistant',"
             "'model':'bench','content':[],'stop_reason':null,'stop_sequence':null,"
             "'usage':{'input_tokens':$n,'output_tokens':1}}}\n\n"
             "event: content_block_start\n"
             "data: {'type':'content_block_start','index':0,'content_block':{'type':'text','text':''}}\n\n",
    .event = "event: content_block_delta\n"
             "data: {'type':'content_block_delta','index':0,'delta':{'type':'text_delta','text':'$m$t'}}\n\n",
    .last = "event: content_block_stop\n"
            "data: {'type':'content_block_stop','index':0}\n\n"
            "event: message_delta\n"
            "data: {'type':'message_delta','delta':{'stop_reason':'end_turn','stop_sequence':null},"
            "'usage':{'output_tokens':100}}\n\n"
            "event: message_stop\n"
            "data: {'type':'message_stop'}\n\n",
};
