// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestErrorsHaveTheWordsOfKubectl(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, refused := http.Get("http://" + nobody + "/api") //nolint:bodyclose // nobody answers
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"an object is missing": {missing, `Error from server (NotFound): nodes "n" not found` + "\n"},
		"with more words": {
			fmt.Errorf("get: %w", missing), `Error from server (NotFound): get: nodes "n" not found` + "\n",
		},
		"nobody listens": {refused, "Unable to connect to the server " + nobody + ": "},
		"several":        {errors.Join(missing, errors.New("b")), "\nerror: b\n"},
		"anything else":  {errors.New("x"), "error: x\n"},
	} {
		var text strings.Builder
		if printError(&text, test.err); !strings.Contains(text.String(), test.want) {
			t.Errorf("%s: got %q, want %q in it", name, text.String(), test.want)
		}
	}
}
