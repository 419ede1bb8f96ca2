package wsserver

import "net/http"

// preflightSeconds is how long browsers may keep the answer to a preflight request: the
// most that they do.
const preflightSeconds = "7200"

// allowOrigin lets the web page that sent a request, whose Origin was accepted, read the
// response. It reports whether it has answered a preflight request: the page may send any
// header and method. Browsers do not send credentials of their own: there are no cookies.
func allowOrigin(w http.ResponseWriter, r *http.Request) (answered bool) {
	header := w.Header()
	header.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", "*")
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || method == "" {
		return false
	}
	header.Set("Access-Control-Allow-Methods", method)
	if headers := r.Header.Values("Access-Control-Request-Headers"); len(headers) > 0 {
		header["Access-Control-Allow-Headers"] = headers
	}
	header.Set("Access-Control-Max-Age", preflightSeconds)
	w.WriteHeader(http.StatusNoContent)
	return true
}
