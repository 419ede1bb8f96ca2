package destination

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

func isRefused(err error) bool {
	_, ok := errors.AsType[*Refused](err)
	return ok
}

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
		var rules Rules
		err := rules.Check(netip.AddrPortFrom(netip.MustParseAddr(address), 80))
		if got := isRefused(err); got != refused {
			t.Errorf("%s: %v, want it refused: %v", address, err, refused)
		}
	}
}

// A local address that no interface has is detected after connecting.
func TestCheckConnected_OwnPort_IsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var rules Rules
	if err := rules.CheckConnected(conn); err != nil {
		t.Errorf("a port that is not ours: %v", err)
	}
	rules.RefuseLocal(uint16(listener.Addr().(*net.TCPAddr).Port))
	if err := rules.CheckConnected(conn); !isRefused(err) {
		t.Errorf("a port that is ours: %v", err)
	}
}
