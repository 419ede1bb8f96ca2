package auth

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestLoopbackUsers_AcceptOnlyNamedUsers(t *testing.T) {
	const other, listed = 1001, 1002
	self := uint32(os.Geteuid())
	unknown := &Error{Kind: KindPeerUnknown, Err: errors.New("no socket")}
	for name, tc := range map[string]struct {
		setting  []string
		peer     Peer
		err      error
		accepted bool
	}{
		"own user":                {[]string{"same"}, Peer{UID: self}, nil, true},
		"root":                    {[]string{"same"}, Peer{}, nil, true},
		"other user":              {[]string{"same"}, Peer{UID: other}, nil, false},
		"no setting":              {nil, Peer{UID: other}, nil, false},
		"unknown":                 {[]string{"same"}, Peer{}, unknown, false},
		"unknown, no setting":     {nil, Peer{}, unknown, false},
		"listed":                  {[]string{"1002"}, Peer{UID: listed}, nil, true},
		"listed by name":          {[]string{"same", "nobody"}, Peer{UID: 65534}, nil, true},
		"own user beside another": {[]string{"1002"}, Peer{UID: self}, nil, true},
		"other beside another":    {[]string{"1002"}, Peer{UID: other}, nil, false},
		"unknown beside another":  {[]string{"1002"}, Peer{}, unknown, false},
		"any":                     {[]string{"any"}, Peer{UID: other}, nil, true},
		"any, unknown":            {[]string{"any"}, Peer{}, unknown, true},
	} {
		users, err := ParseLoopbackUsers(tc.setting)
		if err != nil {
			t.Fatal(err)
		}
		err = users.Check(tc.peer, tc.err)
		if (err == nil) != tc.accepted {
			t.Errorf("%s: %v", name, err)
		}
		if refused, ok := errors.AsType[*Error](err); err != nil && (!ok || refused.Kind != KindPeerRefused || !strings.Contains(refused.ForCaller, "loopback_users") ||
			tc.err == nil && !strings.Contains(refused.ForCaller, fmt.Sprintf("uid %d ", tc.peer.UID))) {
			t.Errorf("%s: %#v", name, err)
		}
	}
	for _, wrong := range [][]string{{"no-such-user-here"}, {"any", "1001"}, {"same", "any"}, {""}, {"-1"}, {"4294967296"}} {
		if users, err := ParseLoopbackUsers(wrong); err == nil {
			t.Errorf("ParseLoopbackUsers(%q) = %v", wrong, users)
		}
	}
}

func TestMapsEveryUser_OnlyInTheInitialNamespace(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":  true,
		"0 1000 1\n":                          false,
		"":                                    false,
		"0 0 65536\n65536 65536 4294901759\n": false,
		"0 100000 65536\n1000 1000 1\n":       false,
	} {
		if got := mapsEveryUser(text); got != want {
			t.Errorf("mapsEveryUser(%q) = %v", text, got)
		}
	}
}

// The table's loopback principal is only for accepted peers.
func TestTable_LoopbackPrincipal_NeedsAcceptedPeer(t *testing.T) {
	refused := LoopbackUsers{}.Check(Peer{UID: 1001}, nil)
	if os.Geteuid() == 1001 {
		t.Fatal("the tests are run as uid 1001")
	}
	listed := &Table{bySelector: map[selector]int{{byLoopback, "true"}: 0}, entries: []entry{{name: "local", may: View}}, byName: map[string]int{"local": 0}}
	unlisted := &Table{bySelector: map[selector]int{}, byName: map[string]int{}}
	for name, tc := range map[string]struct {
		table *Table
		shown Credentials
		kind  Kind
	}{
		"accepted":          {listed, Credentials{Loopback: true}, 0},
		"refused":           {listed, Credentials{Loopback: true, PeerRefused: refused}, KindPeerRefused},
		"refused, unlisted": {unlisted, Credentials{Loopback: true, PeerRefused: refused}, KindCredentialMissing},
	} {
		caller, err := tc.table.Authenticate(tc.shown)
		if errorKind(err) != tc.kind || (err == nil) != (caller.Principal.Name == "local") {
			t.Errorf("%s: %v, %v", name, caller, err)
		}
	}
}
