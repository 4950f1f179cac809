"""The words with which providers say that something is too long, in the languages that they use."""

import re

from treadle.models.http.patterns import any_of

CONTEXT = any_of(
    r"""
    context[ _-]*(?:length|window|size|limit|budget|overflow|capacity)  (?:maximum|available|model) context
    \bn_ctx\b  \bmax_model_len\b  \bmax_seq_len\b  sequence length  maximum model length  model max length
    \btokens? limit\b  \btokens? .{0,8}(?:上限|限制|超限)  \bkv[ _-]?cache\b  \bcache allocated\b
    上下文  コンテキスト  컨텍스트  контекст  contexte  contexto  kontext(?:fenster|länge|größe)?
    """
)
"""The context window."""

INPUT = any_of(
    r"""
    \b(?:prompts?|inputs?|messages?|conversation|history|query|transcript|request|context)\b
    输入  提示  请求  消息  对话  文本  輸入  請求  訊息  對話  入力  プロンプト  メッセージ  입력  프롬프트  메시지
    запрос  сообщени  ввод  entrada  \bsolicitud\b  \bentrée\b  \brequête\b  eingabe  anfrage
    """
)
"""What is sent."""

MEASURE = any_of(
    r"""
    \btokens?\b  \blengths?\b  \blong\b  \bsize\b  \bcharacters?\b  \bchars?\b  \bbytes\b  \blarge\b  \bbig\b
    _tokens?\b  tokens_  长  字符  字数  令牌  過大  過長  長  トークン  길이  토큰  длин  токен
    longueur  jetons  longitud  länge  \blang\b  larg[ao]  字數
    \bmany (?:input )?messages\b
    """
)
"""What is measured of it."""

EXCESS = any_of(
    r"""
    exceed\w*  too[ _](?:long|large|big|many|much)  (?:longer|larger|greater|bigger|more|higher) than  overflow\w*
    \bbeyond\b  surpass\w*  (?:not|cannot|n.?t) fit  over the (?:limit|maximum)  above (?:the )?(?:max\w*|limit)
    \bout of\b.{0,12}context  not enough  limit (?:was |is |has been )?reached  \d\)?\s*(?:>|>=|≥)\s*(?:\w+ )?\(?\d
    reduce (?:the |your )?(?:length|size|number of tokens)  _too_(?:long|large)  _above_max  limit_reached
    超过  超出  超长  超限  过长  过大  太长  太大  大于  超え  長すぎ  大きすぎ  초과  너무  превы  слишком
    dépass  trop[ ]  exced  excès  demasiad  supera  überschr  \bzu (?:lang|groß)  超過  過長  過大  太長
    \b(?:context|window|cache) (?:\w+ ){0,2}full\b  \bonly \d[\d,]* (?:\w+ )?(?:available|left)\b
    """
)
"""That it is too much."""

BOUND = any_of(
    r"""
    \bmax(?:imum|imal|imo|ima)?\b  \blimit\w*  \bat most\b  \bup to\b  \breduce\w*  \bshorte[nr]\w*  \btruncat\w*
    <=|≤  \b(?:less|fewer) than\b  \brange\b  max_?length  try increasing
    最大  上限  限制  范围  制限  최대  제한  максим  лимит  máxim  límite  höchst
    """
)
"""That there is a limit."""

REPLY = any_of(
    r"""
    \bmax_(?!(?:input|prompt|total|context|model|seq\w*|batch\w*|num_batched)_)(?:\w+_)?tokens?(?:_to_sample|_count)?\b
    \bmax tokens?\b(?=:| must| value| should| exceeds| is | invalid| ?参数)
    \bmax(?:imum)?[ -](?:completion|output|new|generation|response)[ -](?:tokens?|length)\b
    \b(?:completion|output|generated) tokens?\b  \bnum_predict\b  \bn_predict\b  \bmax_gen\w*
    (?:in|for) (?:the|your) (?:completion|output|response|reply)
    (?:completion|generation|output|response) length  generating \d+ tokens
    最大输出  输出长度  输出 ?token  maximum tokens you requested
    """
)
"""The bound of the reply."""

REPLY_PARAMETER = any_of(
    r"max_?(?:completion_?|output_?|new_?)?tokens?(?:_?(?:count|to_sample))?  n(?:um)?_predict  max_gen\w*"
)

INPUT_SHARE = any_of(
    r"""
    \binputs?\b  \bprompt\b  in (?:the|your) (?:messages?|prompt)  \bmessages\b  text input  输入
    """
)
"""What is sent, apart from a bound of the reply."""

TOO_LARGE = any_of(
    r"""
    too (?:large|high|big|long)  exceed\w*  at most  (?:less|lower|smaller|fewer) than  <=|≤  \brange\b
    above (?:the )?max\w*  \d\s*>\s*\d  maximum (?:allowed|value|number|is)  must be in  should be in  should be \[
    \[\s*1\s*,\s*\d+\s*\]  supports? (?:only|at most|up to)  (?:less|lower|smaller) or equal  is not possible
    (?:less|lower|smaller|fewer) tokens  valid range  between \d+ and \d+  limited to
    \bmore than\b  \bor (?:less|fewer|lower)\b  超过  超出  范围  大于  小于  最大  上限  取值
    """
)
"""That a bound is too large."""

LOWER_BOUND = any_of(
    r"""
    (?:必须|必需|应该?|需要?|须)大于(?:等于)?  (?:不能|不可|不得)(?:小于|低于)
    \b(?:greater|more|larger|higher) than (?:or equal to )?(?:0|1|zero|one)\b  \bat least\b  below minimum
    \b(?:value|be|is) >=? ?\d
    """
)
"""That a value is too small."""

INVALID_VALUE = any_of(
    r"""
    \binvalid\b  \b(?:not|n.?t) (?:a )?valid\b  \billegal\b  \bincorrect\b  \bunacceptable\b  \bout of bounds\b
    \bparam\w* error\b  非法  不合法  无效  不正确  不合理  有误  错误  不符合  異常  不正  잘못  유효하지
    """
)
"""That a value is refused, without the reason."""

NOT_ITS_SIZE = any_of(
    r"""
    same time  \bboth\b  \bconflict\w*  mutually  \binstead of\b  \buse \w+ instead  \btypes?\b  \bints?\b
    \bintegers?\b  \bstrings?\b  \bnumeric\b  \bnull\b  \bnone\b  \bmissing\b  \brequired?\b  \bunknown\b
    \bunrecognized\b  \bunexpected\b  \bunsupported\b  not (?:supported|allowed|permitted)  \bextra\b
    \bpositive\b  \bnegative\b  类型  整数  为空  缺少  缺失  未知  不支持  同时  冲突  正数  负数
    """
)
"""That a value is refused for another reason than its size."""

MEDIA = any_of(
    r"""
    \b(?:images?|pictures?|photos?|pdfs?|pages|files?|attachments?|audio|videos?|base64|pixels?|media)\b
    image[_.]  input_image  图片  图像  文件  画像  이미지
    """
)

_A_MEDIUM = (
    r"(?:images?|pictures?|photos?|pdfs?|pdf pages?|pages|files?|attachments?|audios?|videos?|base64|pixels?|media"
    r"|multi-?modal (?:data|items?|inputs?)|image_?urls?)"
)
MEDIA_BLAMED = re.compile(
    r"(?:too many|too large|at most|up to|more than|maximum(?: number)? of|max(?:imum)?|only|limit of"
    rf"|exceed\w*(?: the)?) (?:\d[\d,]* )?(?:\w+ )?{_A_MEDIUM}\b"
    rf"|(?<!and )(?<!plus )(?<!including )(?<!with )(?<!or )(?<!\+ )\b{_A_MEDIUM}\b(?:\(s\))?(?: \w+){{0,4}}?"
    r"[ :(]*(?:\d[\d,.]*\)? ?(?:\w+ )?)?"
    r"(?:exceed\w*|(?:is |are |was )?too (?:large|big|long|many)|larger|over the|above)"
    r"|图片.{0,12}(?:超过|超出|过大)|图像.{0,12}(?:超过|超出|过大)"
)
"""That pictures or files themselves are too large or too many, whatever they are counted in."""

MIXED_INPUT = re.compile(
    rf"\b{_A_MEDIUM} (?:and|or|\+|&|plus) (?:the )?(?:text|prompts?|messages?)\b"
    rf"|\b(?:text|prompts?|messages?) (?:and|or|\+|&|plus) (?:the )?{_A_MEDIUM}\b"
)
"""Pictures together with text: the whole conversation."""

MEDIA_TOKENS = re.compile(rf"\b{_A_MEDIUM} (?:input )?tokens?(?: limit)?\b")
"""The tokens of pictures: not those of the conversation."""

TOOLS = any_of(r"\b(?:tools?|functions?|enums?|properties|schemas?|grammar)\b  \btools[\[.]  工具  函数")

ELSEWHERE = any_of(
    r"""
    \b(?:monthly|daily|weekly|hourly)\b  budget_tokens  thinking.{0,20}budget
    took too long  time[sd]?[ -]?out  deadline  processing time  \bqueued?\b  \bheaders?\b  \bwaf\b
    \bquota\b  \bcredits?\b  \bbalance\b  \brate[ _]?limit
    \bper (?:minute|min|second|hour|day|month)\b  \b(?:tpm|rpm|tpd|rpd|qps)\b  concurren  too many requests
    \btop_?k\b  temperature  \bstop\b sequences?  \bn\b must be  额度  余额  频率  并发
    每分钟  每秒  每天  每月  限流  速率
    """
)
"""That something else than the conversation has a limit."""

SMALL_FIELD = any_of(
    r"""
    \b(?:tools?|functions?)\b  name\b  (?:\b|_)ids?\b  (?:\b|_)key\b  identifier\b  \buser\b  metadata  \bstop\b
    temperature  \btop_[pk]\b  \bn\b  seed  logprobs  logit_bias  response_format  budget  image  (?:\b|_)ur[il]s?\b
    \brole\b  \btitle\b  \blabels?\b  \btags?\b  \bdescription\b  service_tier  \bsignature\b  \bheaders?\b
    """
)
"""Parameters that are no part of the conversation."""

SMALL_SUBJECT = re.compile(
    r"\b(?:\w*(?:tool|call|item|user|file|response|conversation|session|thread)[ _]ids?|\w*cache[ _]key"
    r"|safety[ _]identifier|metadata|(?:\w+[ _])?ur[il]s?|(?:tool|function|file|model|key|agent)[ _]names?"
    r"|logit[ _]bias|stop[ _]sequences?)\b[^.\n]{0,60}?"
    r"(?:too long|exceed|at most|longer than|more than|up to|must be|no more|maximum|max(?:imum)?[ _]length)"
)
"""A small field that is too long, named in front of what it exceeds."""

RATE = any_of(
    r"""
    \bper[ _-]?(?:minute|min|second|sec|hour|day|month)\b  \b(?:tpm|rpm|tpd|rpd|itpm|otpm)\b  rate[ _-]?limit
    每分钟  每秒  每天
    """
)

THIS_REQUEST = any_of(
    r"""
    \brequest (?:is )?too large\b  request_?too_?large  single request.{0,40}(?:exceed|larger|too)
    request (?:itself|alone)
    must be reduced in order to run  larger than the (?:rate )?limit
    request.{0,40}(?:larger|more tokens) than.{0,40}(?:limit|allowed|per)  单次请求.{0,20}(?:超过|超出|过大)
    """
)
"""That one request alone is more than a rate allows."""

CODES = any_of(
    r"""
    context_?(?:length|window|size|limit)?_?(?:exceeded|overflow|too_long)  exceed_?context  prompt_?too_?long
    tokens?_too_(?:long|many)  (?:prompt|input)_?tokens?_?(?:limit_?)?exceeded  characters_too_long
    tokens_limit_reached  max_prompt_tokens_exceeded  (?:input|request|prompt|payload)_?too_?(?:long|large)
    out_?of_?context  string_above_max_length  (?:input|prompt)_?length_?exceeded  request_entity_too_large
    """
)

CODE_NUMBERS = frozenset({"1261"})
"""Codes without words: Zhipu, "Prompt too long"."""
