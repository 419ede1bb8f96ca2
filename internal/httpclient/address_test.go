package httpclient

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAddresses_AllForms_AreChecked(t *testing.T) {
	for address, refused := range map[string]bool{
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "10.1.2.3": false, "192.168.0.1": false, "172.16.0.1": false,
		"100.64.0.1": false, "8.8.8.8": false, "2606:4700::1111": false, "fd00::1": false, "fc00:ec2::254": false,
		"64:ff9b::808:808": false, "2002:808:808::1": false, "::ffff:10.0.0.1": false, "::ffff:127.0.0.1": false,

		"0.0.0.0": true, "0.1.2.3": true, "::": true, "::ffff:0.0.0.0": true,
		"169.254.169.254": true, "169.254.0.1": true, "169.254.170.2": true, "fe80::1": true, "fe80::1%lo": true, "febf::1": true,
		"::ffff:169.254.169.254": true, "::169.254.169.254": true, "::ffff:0:169.254.169.254": true,
		"64:ff9b::a9fe:a9fe": true, "64:ff9b:1::a9fe:a9fe": true, "64:ff9b:1:a9fe:a9:fe00::": true,
		"2002:a9fe:a9fe::": true, "2002:a9fe:a9fe:1:2:3:4:5": true,
		"2001:0:a9fe:a9fe::": true, "2001:0:808:808:0:0:5601:5601": true,
		"2002::1": true, "64:ff9b::": true,
		"224.0.0.1": true, "239.255.255.255": true, "ff02::1": true, "255.255.255.255": true, "::ffff:224.0.0.1": true,
		"fd00:ec2::254": true, "fd00:ec2::23": true, "fd20:ce::254": true, "100.100.100.200": true, "168.63.129.16": true, "192.0.0.192": true,
	} {
		var rules addressRules
		err := rules.check(netip.AddrPortFrom(netip.MustParseAddr(address), 80))
		var own *Error
		if got := errors.As(err, &own) && own.Kind == AddressRefused; got != refused {
			t.Errorf("%s: %v, want it refused: %v", address, err, refused)
		}
	}
}

// addressesOfHost returns addresses of this host.
func addressesOfHost(t *testing.T) []string {
	t.Helper()
	all := []string{"127.0.0.1", "127.0.0.2", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]"}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range interfaces {
		if network, ok := of.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			all = append(all, network.IP.String())
		}
	}
	return all
}

func TestOwnListeners_AllAddresses_AreRejected(t *testing.T) {
	u := newUpstream(t, say(ok))
	c := newClient()
	c.RefuseLocal(u.port())
	for _, host := range addressesOfHost(t) {
		_, _, err := get(t, c, &Request{URL: fmt.Sprintf("http://%s:%d/", host, u.port())})
		if !isKind(err, AddressRefused) || !strings.Contains(err.Error(), "a listener of this server") {
			t.Errorf("%s: %v, want it refused", host, err)
		}
	}
	if heads := u.seen(); len(heads) > 0 {
		t.Errorf("the listener was asked: %q", heads)
	}
	mustGet(t, c, &Request{URL: newUpstream(t, say(ok)).url("/")}) // another loopback port
}

// A local address that no interface has is detected after connecting.
func TestDial_ConnectionToSelf_IsRejected(t *testing.T) {
	u := newUpstream(t, say(ok))
	conn, err := net.Dial("tcp", u.host())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var rules addressRules
	if err := rules.checkConnected(conn); err != nil {
		t.Errorf("a port that is not ours: %v", err)
	}
	rules.addOwnPort(u.port())
	if err := rules.checkConnected(conn); !isKind(err, AddressRefused) {
		t.Errorf("a port that is ours: %v", err)
	}
}

func isKind(err error, kind Kind) bool {
	var own *Error
	return errors.As(err, &own) && own.Kind == kind
}

func TestDial_Name_IsCheckedAfterResolution(t *testing.T) {
	u := newUpstream(t, say(ok))
	var asked atomic.Int32
	c := newClient(func(o *Options) {
		o.Resolver = names(t, func(name string) []netip.Addr {
			switch name {
			case "here.test":
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
			case "metadata.test":
				return []netip.Addr{netip.MustParseAddr("169.254.169.254")}
			case "six.test":
				return []netip.Addr{netip.MustParseAddr("64:ff9b::a9fe:a9fe")}
			case "changing.test": // alternates between two addresses, for A and AAAA
				return []netip.Addr{netip.MustParseAddr([]string{"127.0.0.1", "169.254.169.254"}[(asked.Add(1)-1)/2%2])}
			}
			return nil
		})
	})
	at := func(host string) *Request { return &Request{URL: fmt.Sprintf("http://%s:%d/", host, u.port())} }
	mustGet(t, c, at("here.test"))
	mustGet(t, c, at("HERE.test"))
	for i := range 10 { // whichever address is connected to was checked
		if _, _, err := get(t, c, at("changing.test")); err != nil && !isKind(err, AddressRefused) {
			t.Errorf("a changing name, for the %dth time: %v", i+1, err)
		}
	}
	for _, host := range []string{"metadata.test", "METADATA.test", "six.test", "169.254.169.254", "[::ffff:169.254.169.254]", "0.0.0.0", "[::]"} {
		if _, _, err := get(t, c, at(host)); !isKind(err, AddressRefused) {
			t.Errorf("%s: %v, want it refused", host, err)
		}
	}
	if _, _, err := get(t, c, at("unknown.test")); !isKind(err, Failed) {
		t.Errorf("a name that is not there: %v", err)
	}
}

func TestRedirect_Address_IsChecked(t *testing.T) {
	own := newUpstream(t, say(ok))
	for what, location := range map[string]string{
		"link-local":       "http://169.254.169.254/latest/meta-data/",
		"a name":           "http://metadata.test/",
		"our own listener": own.url("/"),
		"this host":        fmt.Sprintf("http://0.0.0.0:%d/", own.port()),
	} {
		u := newUpstream(t, say("HTTP/1.1 307 Moved\r\nLocation: "+location+"\r\nContent-Length: 0\r\n\r\n"))
		c := newClient(func(o *Options) {
			o.Resolver = names(t, func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("169.254.169.254")} })
		})
		c.RefuseLocal(own.port())
		_, _, err := get(t, c, &Request{URL: u.url("/")})
		if !isKind(err, AddressRefused) || !strings.Contains(err.Error(), location) {
			t.Errorf("%s: %v, want it refused with its URL", what, err)
		}
	}
	if heads := own.seen(); len(heads) > 0 {
		t.Errorf("the listener was asked: %q", heads)
	}
}
