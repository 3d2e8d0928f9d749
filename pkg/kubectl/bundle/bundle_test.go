// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestATextIsCutAfterItsLastLineWithinTheBound(t *testing.T) {
	for name, test := range map[string]struct {
		text        string
		left, limit int
		want, why   string
	}{
		"within":                {"one\ntwo\n", 8, 8, "one\ntwo\n", ""},
		"over that of a file":   {"one\ntwo\n", 9, 7, "one\n", "such a file has at most"},
		"over that of a report": {"one\ntwo\n", 7, 8, "one\n", "a report has at most"},
		"nothing is left":       {"one\n", 0, 8, "", "a report has at most"},
		"one long line":         {"one", 2, 8, "", "a report has at most"},
	} {
		c := &contents{left: test.left}
		c.addText("file", "a text", test.text, test.limit)
		if got := string(c.parts[0].content); got != test.want || c.left != test.left-len(test.want) {
			t.Errorf("%s: has %q, and %d bytes are left", name, got, c.left)
		}
		if cut := len(c.missing) > 0; cut != (test.why != "") ||
			cut && (c.missing[0].What != "the end of file" || !strings.HasPrefix(c.missing[0].Why, test.why)) {
			t.Errorf("%s: %q is missing", name, c.missing)
		}
	}
}

func TestObjectsAreCutBetweenTwo(t *testing.T) {
	var nodes []*corev1.Node
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	one, err := document(nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	for left, want := range map[int]int{3 * len(one): 3, 3*len(one) - 1: 2, len(one): 1, 0: 0} {
		c := &contents{left: left}
		if err := addObjects(c, "nodes.yaml", "nodes", nodes); err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(c.parts[0].content, []byte("---\n")); got != want || c.left != left-want*len(one) {
			t.Errorf("of %d bytes: %d nodes, and %d bytes are left", left, got, c.left)
		}
		if cut := len(c.missing) == 1; cut != (want < 3) {
			t.Errorf("of %d bytes: %q is missing", left, c.missing)
		}
	}
}

// endless is an answer without an end.
type endless struct{ closed bool }

func (e *endless) DoRaw(context.Context) ([]byte, error)         { return nil, errors.New("without a bound") }
func (e *endless) Stream(context.Context) (io.ReadCloser, error) { return e, nil }
func (e *endless) Close() error                                  { e.closed = true; return nil }
func (e *endless) Read(to []byte) (int, error)                   { return copy(to, "line\n"), nil }

func TestNoMoreIsReadThanShowsThatThereIsMore(t *testing.T) {
	from := &endless{}
	if text, err := stream(t.Context(), from, 1000); err != nil || len(text) != 1001 || !from.closed {
		t.Errorf("%d bytes, %v, closed: %v", len(text), err, from.closed)
	}
}
