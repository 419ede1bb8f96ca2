package daemon

import (
	"net/http"

	"github.com/execwire/execwire/gateway/connectrpc"
	"github.com/execwire/execwire/gateway/filehttp"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/server"
)

// mounts returns what is served by HTTP, beside websockets and health, by prefix: files,
// metrics, and the contract by Connect, gRPC-Web and JSON. beginHTTP authenticates these requests.
func (c *clients) mounts() map[string]http.Handler {
	mounts := map[string]http.Handler{auth.FileURLPrefix + "/": filehttp.NewHandler(filehttp.Config{Prefix: auth.FileURLPrefix, Begin: c.beginFile})}
	handler := connectrpc.New(connectrpc.Config{Begin: c.beginRPC, MessageBytes: receiveLimit(c.cfg)})
	mounts[metricsPath] = c.serveMetrics()
	for _, prefix := range connectrpc.Prefixes() {
		mounts[prefix] = handler
	}
	return mounts
}

// beginRPC authenticates and authorizes a call by HTTP before its message is read. It can
// only refuse: the server authorizes the call in any case, with its message.
func (c *clients) beginRPC(r *http.Request, method string) (connectrpc.Call, error) {
	if server.IsPublic(method) {
		ctx, end := c.track(r.Context(), httpConnOf(r).peer.Admission)
		return connectrpc.Call{Context: ctx, Conn: c.upstream(clientAuthInfo{api: apiConnect}), End: end}, nil
	}
	call, err := c.beginHTTP(r, c.authenticator.admitHTTP)
	if err != nil {
		return connectrpc.Call{}, server.MayCall(auth.Caller{}, err, method, nil)
	}
	call.info.api = apiConnect
	if err := server.MayCall(call.caller, nil, method, nil); err != nil {
		by := call.info.by
		by.API = string(apiConnect)
		c.auditRefusal(by, call.caller, method, err)
		call.end()
		return connectrpc.Call{}, err
	}
	return connectrpc.Call{Context: call.ctx, Conn: c.upstream(call.info), End: call.end, Fail: func(err error) error {
		if why := orEvicted(call.ctx, err); why != err {
			return server.MayCall(call.caller, why, method, nil)
		}
		return err
	}}, nil
}
