// Package listen opens the daemon's doors: it reads the URLs that name them,
// refuses what must not be opened, and says who comes in.
//
// A door with nothing but what the kernel knows must not be reachable from
// beyond this host: plain TCP binds to loopback only, and a unix socket is its
// owner's alone from the moment it exists. A door with TLS may be, and one for
// websockets, once callers have to show who they are.
package listen
