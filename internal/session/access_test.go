package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/session"
)

func TestGrant_DegreesOfAccess(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer c.a.Lost()
	all := []session.Access{session.AccessView, session.AccessWrite, session.AccessOwner}
	// expectAccess checks the result for each degree of access of a principal.
	expectAccess := func(principal string, most session.Access) {
		t.Helper()
		for _, access := range all {
			s, err := f.registry.Open(principal, c.id, access)
			switch {
			case access <= most:
				if err != nil || s.ID() != c.id {
					t.Errorf("%s expectAccess not %v: %v", principal, access, err)
				}
			case most == session.AccessNone:
				wantKind(t, err, session.SessionNotFound)
			default:
				wantKind(t, err, session.SessionAccessDenied)
			}
		}
		if list, _ := f.registry.Sessions(principal, "", 10); (len(list) == 1) != (most > session.AccessNone) {
			t.Errorf("%s sees %v", principal, list)
		}
	}
	expectAccess("tester", session.AccessOwner)
	expectAccess("friend", session.AccessNone)
	for _, access := range []session.Access{session.AccessView, session.AccessWrite, session.AccessNone, session.AccessView} {
		info, err := f.registry.Grant("tester", c.id, "friend", access)
		if err != nil || info.Grants["friend"] != access {
			t.Fatalf("Grant = %+v, %v", info, err)
		}
		expectAccess("friend", access)
		expectAccess("other", session.AccessNone)
	}
	if list, _ := f.registry.Sessions("friend", "", 10); list[0].Grants != nil || list[0].Principal != "tester" {
		t.Errorf("the listing for the grantee is %+v", list[0])
	}
	_, err := f.registry.Grant("friend", c.id, "other", session.AccessView)
	wantKind(t, err, session.SessionAccessDenied)
	_, err = f.registry.Grant("other", c.id, "other", session.AccessView)
	wantKind(t, err, session.SessionNotFound)
	_, err = f.registry.Attach(f.ctx, "friend", session.AttachRequest{SessionID: c.id})
	wantKind(t, err, session.SessionAccessDenied)
	_, err = f.registry.Attach(f.ctx, "other", session.AttachRequest{SessionID: c.id})
	wantKind(t, err, session.SessionNotFound)
	wantKind(t, f.registry.CloseSession(f.ctx, "friend", c.id), session.SessionAccessDenied)
	wantKind(t, f.registry.CloseSession(f.ctx, "other", c.id), session.SessionNotFound)
}

func TestGrant_Limit(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer c.a.Lost()
	for i := range session.MaxGrants {
		if _, err := f.registry.Grant("tester", c.id, fmt.Sprint("friend", i), session.AccessView); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.registry.Grant("tester", c.id, "one more", session.AccessView)
	wantKind(t, err, session.TooManyGrants)
	if _, err := f.registry.Grant("tester", c.id, "friend0", session.AccessWrite); err != nil {
		t.Errorf("a grant cannot be changed: %v", err)
	}
	if _, err := f.registry.Grant("tester", c.id, "friend1", session.AccessNone); err != nil {
		t.Error(err)
	}
	if _, err := f.registry.Grant("tester", c.id, "one more", session.AccessView); err != nil {
		t.Errorf("a revoked grant still counts: %v", err)
	}
}

func TestDefaultSession_HasNoLease(t *testing.T) {
	f := newFixture(t, session.Config{})
	for _, id := range []string{"", session.DefaultID} {
		_, err := f.registry.Grant("tester", id, "friend", session.AccessView)
		wantKind(t, err, session.DefaultSession)
	}
	_, err := f.registry.Attach(f.ctx, "tester", session.AttachRequest{SessionID: session.DefaultID})
	wantKind(t, err, session.DefaultSession)
	if list, _ := f.registry.Sessions("tester", "", 10); len(list) != 0 {
		t.Errorf("the list contains the default session: %v", list)
	}
	f.start(t, "p", "/bin/cat")
	mine, err := f.registry.Open("tester", session.DefaultID, session.AccessOwner)
	if err != nil || mine != f.Session {
		t.Errorf("the default session is %v, %v", mine, err)
	}
}

func TestSessions_InfoAndPages(t *testing.T) {
	f := newFixture(t, session.Config{DefaultGrace: time.Minute})
	var clients []*client
	for range 5 {
		clients = append(clients, f.newClient(t, session.AttachRequest{}))
	}
	seen := map[string]session.Info{}
	after, pages := "", 0
	for more := true; more; pages++ {
		var list []session.Info
		list, more = f.registry.Sessions("tester", after, 2)
		for _, info := range list {
			if info.ID <= after {
				t.Fatalf("%s follows %s", info.ID, after)
			}
			after = info.ID
			seen[info.ID] = info
		}
	}
	if pages != 3 || len(seen) != 5 {
		t.Errorf("%d sessions on %d pages", len(seen), pages)
	}
	c := clients[0]
	c.start("p", spec("/bin/cat"))
	before := time.Now()
	c.a.Lost()
	info := c.a.Session().Info("tester")
	if info.Attached || info.Grace != time.Minute || info.Processes != 1 || info.WhenDetached != session.WhenDetachedBlock ||
		info.Principal != "tester" || info.Expires.Before(before.Add(time.Minute)) || info.Created.After(before) {
		t.Errorf("the session's info is %+v", info)
	}
	c.attach(session.AttachRequest{Grace: within(2 * time.Minute), WhenDetached: session.WhenDetachedDiscardOldest})
	c.a.Lost()
	c.attach(session.AttachRequest{}) // processes remain in both states
	info = c.a.Session().Info("tester")
	if !info.Attached || !info.Expires.IsZero() || info.Grace != 2*time.Minute || info.WhenDetached != session.WhenDetachedDiscardOldest {
		t.Errorf("the session's info is %+v", info)
	}
	for _, c := range clients {
		c.a.Lost()
		if err := f.registry.CloseSession(f.ctx, "tester", c.id); err != nil {
			t.Error(err)
		}
	}
}
