// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

func TestASocketIsWellOnlyIfItsOwnerAnswers(t *testing.T) {
	dir := t.TempDir()
	served, hung := filepath.Join(dir, "served.sock"), filepath.Join(dir, "hung.sock")
	startRuntime(t, served)
	// A process that hangs: the kernel takes connections for it, and nobody reads them.
	listener, err := net.Listen("unix", hung)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, test := range map[string]struct{ path, says string }{
		"served":  {served, ""},
		"hung":    {hung, "does not answer"},
		"missing": {filepath.Join(dir, "missing.sock"), "no process serves"},
	} {
		limit := 20 * time.Second
		if name == "hung" {
			limit = 100 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := socketAnswers(test.path).run(ctx)
		cancel()
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

// A process that drains sends new connections away as soon as they are made, and then takes no
// more.
func TestASocketWhoseOwnerDrainsIsSoonKnown(t *testing.T) {
	for range 50 {
		path := filepath.Join(shortDir(t), "draining.sock")
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			conn, err := listener.Accept()
			listener.Close()
			if err != nil {
				return
			}
			defer conn.Close()
			frames := http2.NewFramer(conn, conn)
			if err := frames.WriteSettings(); err != nil {
				return
			}
			if err := frames.WriteGoAway(0, http2.ErrCodeNo, nil); err != nil {
				return
			}
			io.Copy(io.Discard, conn) //nolint:errcheck // the other end closes the connection
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		socketAnswers(path).run(ctx) //nolint:errcheck // either answer is right
		if ctx.Err() != nil {
			t.Fatal("no answer in 20s")
		}
		cancel()
		<-ended
	}
}

func TestARuntimeIsWellOnlyIfItAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	conn, err := criproxy.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := runtimeAnswers(conn).run(t.Context()); err == nil {
		t.Error("a runtime that is not there is well")
	}
	startRuntime(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for err = runtimeAnswers(conn).run(ctx); err != nil; err = runtimeAnswers(conn).run(ctx) {
		if ctx.Err() != nil {
			t.Fatalf("a runtime that is there: %v", err)
		}
	}
}

func TestReasonsOfFailedChecksAreWithheldFromStrangers(t *testing.T) {
	checks := []check{{
		name: "grants", run: func(context.Context) error { return errors.New("the disk of team-a is full") },
	}}
	for _, mayKnow := range []bool{true, false} {
		answer := httptest.NewRecorder()
		report(checks, func(*http.Request) bool { return mayKnow }).
			ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		text := answer.Body.String()
		if answer.Code != http.StatusServiceUnavailable || !strings.HasPrefix(text, "[-]grants: ") ||
			strings.Contains(text, "team-a") != mayKnow {
			t.Errorf("a reader who may know (%v) sees status %d, %q", mayKnow, answer.Code, text)
		}
	}
}

// What is left out of one plugin's devices is shown while another plugin fails.
func TestNotesAreShownOfChecksThatPassAndOfChecksThatFail(t *testing.T) {
	for _, failed := range []error{nil, errors.New("one plugin fails")} {
		checks := []check{{
			name: "plugins", run: func(context.Context) error { return failed },
			note: func() string { return "another plugin lists a device without an ID" },
		}}
		for _, mayKnow := range []bool{true, false} {
			recorder := httptest.NewRecorder()
			report(checks, func(*http.Request) bool { return mayKnow }).
				ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			if shown := strings.Contains(recorder.Body.String(), "without an ID"); shown != mayKnow {
				t.Errorf("failed for %v, reader may know: %t: %s", failed, mayKnow, recorder.Body)
			}
		}
	}
}
