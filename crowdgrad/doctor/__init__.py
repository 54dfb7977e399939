"""What is in the way of lending this machine, or of hosting from it, and what to do about it.

`measuring`, `multicast` and `dialling` look, `judging` says what it means, `checkup` does all of it
at once.
"""
