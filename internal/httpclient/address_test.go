package httpclient

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execwire/execwire/internal/destination"
)

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
	c := newClient(refusing(u.port()))
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

// refusing refuses a port of this host.
func refusing(port uint16) func(*Options) {
	return func(o *Options) {
		o.Rules = new(destination.Rules)
		o.Rules.RefuseLocal(port)
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
		c := newClient(refusing(own.port()), func(o *Options) {
			o.Resolver = names(t, func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("169.254.169.254")} })
		})
		_, _, err := get(t, c, &Request{URL: u.url("/")})
		if !isKind(err, AddressRefused) || !strings.Contains(err.Error(), location) {
			t.Errorf("%s: %v, want it refused with its URL", what, err)
		}
	}
	if heads := own.seen(); len(heads) > 0 {
		t.Errorf("the listener was asked: %q", heads)
	}
}
