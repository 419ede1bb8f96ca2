package auth

import (
	"path"
	"slices"
)

// Member is an authenticated client of a relay hub, with the executors that it
// may use. The zero value has no rights.
type Member struct {
	// Principal identifies the client.
	Principal Principal

	actAs, connectTo []string // patterns
}

// MayActAs reports whether the member may act as the executor with that id.
func (m Member) MayActAs(executor string) bool { return matchesAny(m.actAs, executor) }

// MayConnectTo reports whether the member may connect to the executor with that
// id.
func (m Member) MayConnectTo(executor string) bool { return matchesAny(m.connectTo, executor) }

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}

// UnrestrictedMember returns p as a member with access to all executors.
func UnrestrictedMember(p Principal) Member {
	return Member{Principal: p, actAs: []string{"*"}, connectTo: []string{"*"}}
}

// Member authenticates a client of a relay hub. Its rights are act_as_executors
// and connect_to_executors of the table; without a table every peer on loopback
// has access to all executors. There is no impersonation at a hub. The error is
// an *[Error].
func (a *Authenticator) Member(c Credentials) (Member, error) {
	c.OnBehalfOf = ""
	if a.table == nil {
		self, err := a.withoutTable(c)
		if err != nil {
			return Member{}, err
		}
		return UnrestrictedMember(self.Principal), nil
	}
	table := a.table.Get()
	i, err := table.findEntry(c)
	if err != nil {
		return Member{}, err
	}
	e := table.entries[i]
	return Member{Principal: Principal{Name: e.name}, actAs: e.actAs, connectTo: e.connectTo}, nil
}
