"""The matchmaker: the small public service where hosts and volunteers find each other.

It introduces people and then gets out of the way: it is never in the training path, and a running
job does not notice when it is gone.

    serve       the process: a port, signals, an end within a second
    app         everything put together; api/ has the routes, openapi and examples describe them
    doorkeeper  who may come in: signatures, clocks, replays, how often (limits)
    desk        publishing and registering: what is remembered (store)
    room        who is here, whom the planner matches, who is told what; loop is its pulse
    credits     who gave what; people: what is kept about a key; pages: what people look at
    metrics     figures; logs and telling: what happened
"""
