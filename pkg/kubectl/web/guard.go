// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// tokenParameter is what the key is called in the fragment of the address. Browsers send no
// fragments: the page's script reads it there.
const tokenParameter = "token"

// keyPath is where the page exchanges the key of its address for the one that it keeps.
const keyPath = "/key"

// headers are those of every answer.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"Cache-Control":                "no-store",
}

// guard lets in the user's own browser alone. It is safe for concurrent use.
//
// The page itself is no secret, and every user of this machine may load it. What it shows is sent
// to every client with the key, in a header: browsers send cookies to all ports of a host, and so
// to the servers of others on this machine, but a header only where the page's script wants it. The
// key that the script keeps is the origin's alone, and the port is a part of that.
type guard struct {
	page, data http.Handler
	key        string
	ofUser     func(from, to string) bool // whether the one who connects is this user

	mu   sync.Mutex
	once string // another key, which is good for one request of this user's
}

// newGuard returns the guard of a page, and of the paths that have data.
func newGuard(page http.Handler, data http.Handler) *guard {
	return &guard{page: page, data: data, key: rand.Text(), ofUser: connectsAsUser}
}

// onceKey returns a key that is good for one request of this user's. What starts a browser gets
// this one: everybody on the machine can read the arguments of a program.
func (g *guard) onceKey() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.once = rand.Text()
	return g.once
}

// ServeHTTP serves who may be served.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	switch {
	case !isLoopback(r.Host):
		http.Error(w, fmt.Sprintf("The host %q is not this machine: use 127.0.0.1 or localhost.", r.Host),
			http.StatusForbidden)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "The map can be read, nothing else.", http.StatusMethodNotAllowed)
	case r.Header.Get("Origin") != "" && r.Header.Get("Origin") != "http://"+r.Host:
		http.Error(w, "Another page may not read the map.", http.StatusForbidden)
	case isPage(r.URL.Path):
		g.page.ServeHTTP(w, r)
	case !ofThisPage(r):
		http.Error(w, "Another page may not read the map.", http.StatusForbidden)
	case r.URL.Path == keyPath && g.opens(bearer(r), r):
		fmt.Fprint(w, g.key)
	case r.URL.Path != keyPath && equal(bearer(r), g.key):
		g.data.ServeHTTP(w, r)
	default:
		http.Error(w, "Open the address that \"kubectl device web\" has printed: the key in it is missing here, or is "+
			"of an earlier one.", http.StatusForbidden)
	}
}

// isPage reports whether a path is one of the page's own files: a name with a suffix, or none.
func isPage(path string) bool { return path == "/" || strings.Contains(path, ".") }

// ofThisPage reports whether no other page has made a request, as far as the browser says so. To a
// browser, other ports of this host are the same site.
func ofThisPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "" || site == "same-origin"
}

// bearer returns the key of a request, or "".
func bearer(r *http.Request) string {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return key
}

// opens reports whether the key of a request is right.
func (g *guard) opens(key string, r *http.Request) bool {
	if equal(key, g.key) {
		return true
	}
	to, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.once == "" || !equal(key, g.once) || to == nil || !g.ofUser(r.RemoteAddr, to.String()) {
		return false
	}
	g.once = ""
	return true
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// isLoopback reports whether a host, with or without a port, is this machine by its address or as
// localhost. The port may be another one, where the connection is forwarded.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
