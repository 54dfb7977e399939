"""The matchmaker's pages for people: pure functions from what is known to HTML.

    markup    text becomes HTML only here      layout     the frame, the stylesheet, HEADERS
    words     numbers in plain words           pictures   QR codes and bars
    jobs      the front page, one job          keys       what a key gave
    about     privacy, and errors for people

Every page goes out with `HEADERS`, whose Content-Security-Policy lets a browser load nothing; the
front page and a job's with `APP_HEADERS` where the web app is built, which they then load.
"""

from crowdgrad.matchmaker.pages.about import privacy, problem
from crowdgrad.matchmaker.pages.jobs import front, job
from crowdgrad.matchmaker.pages.keys import key
from crowdgrad.matchmaker.pages.layout import APP_HEADERS, HEADERS
from crowdgrad.matchmaker.pages.pictures import qr_svg

__all__ = ["APP_HEADERS", "HEADERS", "front", "job", "key", "privacy", "problem", "qr_svg"]
