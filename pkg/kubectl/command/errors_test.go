// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// interrupted is a scheduler that has not answered before the user interrupts the command.
type interrupted context.CancelFunc

func (interrupt interrupted) Query(ctx context.Context, _, _ string, _, _ any) error {
	interrupt()
	return fmt.Errorf("no answer: %w", ctx.Err())
}

func TestAnInterruptionIsNoAnswer(t *testing.T) {
	for line, want := range map[string]int{
		"why big":                               placementFailed,
		"whatif big":                            placementFailed,
		"fit -f testdata/placement/share.yaml":  placementFailed,
		"lint -f testdata/placement/share.yaml": lintFailed,
		"nodes":                                 1,
	} {
		f := newFixture()
		ctx, interrupt := context.WithCancel(t.Context())
		f.scheduler = interrupted(interrupt)
		f.client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			interrupt()
			return true, nil, ctx.Err()
		})
		if _, stderr, status := f.run(ctx, line); status != want || stderr != "" {
			t.Errorf("%s: exit status %d, want %d, %q", line, status, want, stderr)
		}
	}
}

func TestErrorsAreWordedAsThoseOfKubectl(t *testing.T) {
	const closed = "127.0.0.1:1"
	_, refused := http.Get("http://" + closed + "/api") // no server answers
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"an object is missing": {missing, `Error from server (NotFound): nodes "n" not found` + "\n"},
		"with more words": {
			fmt.Errorf("get: %w", missing), `Error from server (NotFound): get: nodes "n" not found` + "\n",
		},
		"no server":     {refused, "Unable to connect to the server " + closed + ": "},
		"several":       {errors.Join(missing, errors.New("b")), "\nerror: b\n"},
		"anything else": {errors.New("x"), "error: x\n"},
	} {
		var text strings.Builder
		if printError(&text, test.err); !strings.Contains(text.String(), test.want) {
			t.Errorf("%s: got %q, want %q in it", name, text.String(), test.want)
		}
	}
}
