"""Translating over HTTP: what nmt-serve runs.

config.py      the options of nmt-serve
admission.py   which requests are accepted: Host, headers, Content-Type, API keys
request_forms.py  requests in each client's form become lines for a model
costs.py       how much work a line is, estimated
waiting.py     lines of all requests wait for a worker, and leave in windows
workers.py     start the processes that translate
desk.py        a worker's side of its connection; translating.py translates a window
dispatching.py windows go to workers, translations back to requests
rendering.py   translations of a line, rendered by a worker
answering.py   translations in the form of each client
app.py         the routes; body.py reads and parses the body of a request, within limits
server.py      the listening socket, and how the server stops
"""
