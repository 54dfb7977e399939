"""How data spreads, decided without sockets and clocks.

`plans` says what a plan decides: who exchanges with whom, what the host gives out next, and whom a
member serves next. `swarm` and `tree` are the plans. `crowd` is what a host knows of its members,
`fetching` what a member knows of its neighbours and asks them for, `uploads` how many uploads a
link takes at once. `rounds` lives it all in a world where everybody sends one chunk a round.
"""
