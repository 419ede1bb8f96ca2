// Package wsserver is the HTTP side of the gateway: it authenticates requests, upgrades
// them to websockets, and answers health checks.
package wsserver
