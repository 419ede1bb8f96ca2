package auth

import (
	"slices"
	"strings"
)

// Permissions is a set of permissions. The zero value is empty.
type Permissions uint16

// Permissions. Every call requires one of them.
const (
	View        Permissions = 1 << iota // look at processes and read their output
	Start                               // start, run and take over processes
	Control                             // write to processes, signal and terminate them
	Session                             // lease, list, grant and close sessions
	Environment                         // describe this machine
	ReadFiles                           // read files, list directories
	WriteFiles                          // write, create, copy and remove files and directories
	HTTP                                // make HTTP requests
	Ports                               // connect to ports
	Admin                               // operate the server: reload, upgrade, diagnose
)

// Sets of permissions.
const (
	// All is "all" in a table: every permission but [Admin], whose calls can change what
	// the server enforces and show what others do.
	All        = View | Start | Control | Session | Environment | ReadFiles | WriteFiles | HTTP | Ports
	Everything = All | Admin
)

var permissionNames = []string{"view", "start", "control", "session", "environment", "read_files", "write_files", "http", "ports", "admin"}

// ParsePermissions returns the set of the named permissions; "all" is [All]. For an unknown
// name ok is false.
func ParsePermissions(names []string) (set Permissions, unknown string, ok bool) {
	for _, name := range names {
		i := slices.Index(permissionNames, name)
		switch {
		case name == "all":
			set |= All
		case i < 0:
			return 0, name, false
		default:
			set |= 1 << i
		}
	}
	return set, "", true
}

// Has reports whether p contains other.
func (p Permissions) Has(other Permissions) bool { return p&other == other }

// String returns the names, separated by commas, or "none".
func (p Permissions) String() string {
	var names []string
	for i, name := range permissionNames {
		if p.Has(1 << i) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
