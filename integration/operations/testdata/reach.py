"""Tries to make a server do something, from inside a sandbox: the requests of the plan in argv[1],
by every way in. Prints a line of JSON for each."""

import array
import itertools
import json
import os
import re
import socket
import sys

plan = json.loads(sys.argv[1])
BODY = json.dumps({"processId": "ID", "command": {"direct": {
    "argv": ["touch", plan["marker"]], "workingDirectory": "/", "env": {"PATH": "/usr/bin:/bin"}}}})


def request(head, body="", *fields):
    lines = [head + " HTTP/1.1", "Host: localhost", "Content-Length: %d" % len(body), *fields, "", body]
    return "\r\n".join(lines).encode()


starts = itertools.count()


def start():
    body = BODY.replace("ID", "escaped-%d-%d" % (os.getpid(), next(starts)))
    return request("POST /execwire.v1.ProcessService/StartProcess", body, "Content-Type: application/json", "Connection: close")


REQUESTS = {
    "connect": start,
    "file": lambda: request("PUT /v1/files" + plan["marker"], "escaped", "Connection: close"),
    "read": lambda: request("GET /v1/files" + plan["secret"], "", "Connection: close"),
    "websocket": lambda: request("GET /", "", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),
}

if plan.get("requests"):
    def start():  # for the address of this name, which ends with that of the listener
        return next(text for url, text in plan["requests"].items() if name.endswith(url)).encode()

    REQUESTS = {"request": start}


def connect(address):
    if isinstance(address, str):
        family = socket.AF_UNIX
        if address.startswith("@"):
            address = "\0" + address[1:]
    else:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        address = tuple(address)
    s = socket.socket(family)
    s.connect(address)
    return s


def complete(response):
    head, end, body = response.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return end and (b" 101 " in head or length and len(body) >= int(length[1]))


def answer(s, sent):
    s.settimeout(plan["timeout"])
    if sent:
        s.sendall(sent)
    got = b""
    while not complete(got):
        piece = s.recv(65536)
        if not piece:
            break
        got += piece
    s.close()
    return got.decode(errors="replace")


def report(way, result):
    os.write(1, (json.dumps({"way": way, "result": result}) + "\n").encode())


def attempt(way, address, sent):
    try:
        report(way, answer(connect(address), sent))
    except OSError as e:
        report(way, "errno %s" % e.errno)


def detached(way, address, early):
    """Asks from a descendant that has left its session and its parents. With early, the connection is
    made before."""
    s = None
    try:
        if early:
            s = connect(address)
    except OSError as e:
        report(way, "errno %s" % e.errno)
        return
    done, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        parent = os.getpid()
        if os.fork() != 0:
            os._exit(0)
        while os.getppid() == parent:
            os.sched_yield()
        try:
            report(way, answer(s or connect(address), start()))
        except OSError as e:
            report(way, "errno %s" % e.errno)
        os._exit(0)
    os.waitpid(child, 0)
    if s:
        s.close()
    os.close(write)
    os.read(done, 1)


def handed(way, address):
    """Asks by a connection that a process outside of the sandbox has open, too."""
    try:
        s = connect(address)
        keeper = connect(plan["keeper"])
    except OSError as e:
        report(way, "errno %s" % e.errno)
        return
    keeper.sendmsg([b"k"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
    keeper.recv(1)  # it has it
    try:
        report(way, answer(s, start()))
    except OSError as e:
        report(way, "errno %s" % e.errno)
    keeper.close()


def in_flight(way, address):
    """Asks by a connection that no process has open for some time: its descriptor is in a message."""
    inside, outside = socket.socketpair()
    try:
        s = connect(address)
        inside.sendmsg([b"k"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
        s.sendall(start())
        s.close()
        answer(connect(address), start())  # takes as long
        _, control, _, _ = outside.recvmsg(1, socket.CMSG_SPACE(4))
        report(way, answer(socket.socket(fileno=array.array("i", control[0][2])[0]), b""))
    except OSError as e:
        report(way, "errno %s" % e.errno)


for name, address in plan["addresses"].items():
    for kind, make in REQUESTS.items():
        way = kind + " by " + name
        attempt(way, address, make())
for name in plan["owned"]:
    detached("detached by " + name, plan["addresses"][name], False)
    detached("connected and detached by " + name, plan["addresses"][name], True)
    if not isinstance(plan["addresses"][name], str):
        handed("handed over by " + name, plan["addresses"][name])
        if plan["confined"]:
            in_flight("in flight by " + name, plan["addresses"][name])
