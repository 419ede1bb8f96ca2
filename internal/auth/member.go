package auth

import (
	"path"
	"slices"
)

// Member is who calls a hub of the relay, and which executors are its business.
// The zero value is nobody, who may do nothing.
type Member struct {
	// Principal is who it is.
	Principal Principal

	actAs, connectTo []string // patterns
}

// MayActAs reports whether the member may be the executor with that id.
func (m Member) MayActAs(executor string) bool { return matchesAny(m.actAs, executor) }

// MayConnectTo reports whether the member may use the executor with that id.
func (m Member) MayConnectTo(executor string) bool { return matchesAny(m.connectTo, executor) }

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}

// UnrestrictedMember returns p as a member whose business all executors are.
func UnrestrictedMember(p Principal) Member {
	return Member{Principal: p, actAs: []string{"*"}, connectTo: []string{"*"}}
}

// Member returns who shows c at a hub of the relay: whom act_as_executors and
// connect_to_executors of the table are for. Without a table it is everybody on
// loopback, and all executors are its business. Nobody acts for others there. The
// error is an *[Error].
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
	i, err := table.find(c)
	if err != nil {
		return Member{}, err
	}
	e := table.entries[i]
	return Member{Principal: Principal{Name: e.name}, actAs: e.actAs, connectTo: e.connectTo}, nil
}
