// Package preview serves ports of executors over HTTP, each on a host of its own:
// https://PORT--EXECUTOR.DOMAIN/.
//
// A request whose host names a port is passed to it through the relay, by ConnectPort of
// the executor, which decides whether the port may be connected to. Its caller is a
// principal that may connect to the executor, or has a link that such a principal made:
// a URL with a signed claim, which a browser exchanges for a cookie of that host.
package preview
