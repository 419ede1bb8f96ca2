package listen

import (
	"net"
	"slices"
)

// inherited returns the socket of Inherited with the address of u, or nil.
func (l Options) inherited(u URL) net.Listener {
	i := slices.IndexFunc(l.Inherited, func(socket net.Listener) bool {
		switch address := socket.Addr().(type) {
		case *net.TCPAddr:
			return u.Scheme != SchemeUnix && address.AddrPort() == u.Addr
		case *net.UnixAddr:
			return u.Scheme == SchemeUnix && address.Name == u.Path
		}
		return false
	})
	if i < 0 {
		return nil
	}
	return l.Inherited[i]
}

// CheckInherited returns an *[Error] for the first of the sockets that not exactly one
// listener of opened uses: its clients would wait forever, or get either of two protocols.
func CheckInherited[L Listener](sockets []net.Listener, opened []L) error {
	for _, socket := range sockets {
		address, users := socket.Addr(), 0
		for _, l := range opened {
			if l.Addr().Network() == address.Network() && l.Addr().String() == address.String() {
				users++
			}
		}
		url := address.Network() + " " + address.String()
		switch users {
		case 0:
			return &Error{Kind: KindSystem, URL: url,
				Problem: "the program was started with this socket, and no listener of the settings has its address",
				Fix:     "add the address to the setting listen, or stop and disable the socket unit that has it"}
		case 1:
		default:
			return &Error{Kind: KindInUse, URL: url,
				Problem: "the program was started with this socket, and several listeners of the settings have its address",
				Fix:     "leave one of them in the setting listen"}
		}
	}
	return nil
}
