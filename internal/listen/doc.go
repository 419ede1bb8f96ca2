// Package listen opens the daemon's doors: it reads the URLs that name them,
// refuses what this build must not open, and says who comes in.
//
// There is no authentication beyond what the kernel knows, so no door may be
// reachable from beyond this host: TCP binds to loopback only, and a unix
// socket is its owner's alone from the moment it exists.
package listen
