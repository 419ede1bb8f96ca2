package sandbox

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var networkAttempts = map[string]attempt{
	"connect to path": {make: func(s stage) error {
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, connectTo(&unix.SockaddrUnix{Name: s.Path}))
	}},
	"connect to abstract name": {make: func(s stage) error {
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, connectTo(&unix.SockaddrUnix{Name: s.Name}))
	}},
	"send to path": {make: func(s stage) error {
		return withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, 0, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: s.Packet})
		})
	}},
	"send to path from a pair": {make: func(s stage) error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendmsg(pair[0], []byte("x"), nil, &unix.SockaddrUnix{Name: s.Packet}, 0)
	}},
	"connect by TCP": {make: func(s stage) error { return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, connectTo(loopback(s.TCP))) }},
	"connect by MPTCP": {make: func(s stage) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, connectTo(loopback(s.TCP)))
	}},
	"connect by UDP": {make: func(s stage) error { return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, connectTo(loopback(s.UDP))) }},
	"send by UDP": {make: func(s stage) error {
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) error { return unix.Sendto(fd, []byte("x"), 0, loopback(s.UDP)) })
	}},
	"listen by TCP": {make: func(stage) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error {
			return errors.Join(unix.Bind(fd, loopback(0)), unix.Listen(fd, 1))
		})
	}},
	"listen at path": {make: func(s stage) error {
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error {
			return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(filepath.Base(s.Dir), "inside", "own")}), unix.Listen(fd, 1))
		})
	}},
	"use netlink": {make: func(stage) error {
		return withSocket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, func(fd int) error { return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) })
	}},
	"use raw sockets": {root: true, make: func(stage) error {
		return withSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, func(int) error { return nil })
	}},
	"use packet sockets": {root: true, make: func(stage) error { return withSocket(unix.AF_PACKET, unix.SOCK_RAW, 0, func(int) error { return nil }) }},
}
