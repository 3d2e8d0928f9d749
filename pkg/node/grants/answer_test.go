// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const nic = "example.com/nic"

// keep keeps an answer for the container main of pod a.
func keep(r *Record, answer string) (string, error) {
	kept, err := r.Keep(context.Background(), "a", "main", nic, []byte(answer))
	return string(kept), err
}

// granted returns a record on which pod a is, which lives.
func granted(t *testing.T) (*world, *Record) {
	t.Helper()
	w := newWorld()
	r, _ := open(t, w)
	g := wants("a", map[types.ResourceName]int64{cards0: 1})
	pin(t, r, g)
	w.run(g)
	return w, r
}

func TestTheFirstAnswerIsKeptOverRestarts(t *testing.T) {
	w, r := granted(t)
	for _, later := range []string{"first", "second", "third"} {
		if kept, err := keep(r, later); kept != "first" || err != nil {
			t.Errorf("kept %q, %v when %q comes; want what came first", kept, err, later)
		}
		r = restart(t, w, r)
	}
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept, ok := r.Kept("a", "main", nic); !ok || string(kept) != "first" {
		t.Errorf("kept %q, %v", kept, ok)
	}
}

func TestAnswersAreKeptApart(t *testing.T) {
	w, r := granted(t)
	want := Answers{"main": {nic: []byte{0, 0xff}, "example.com/gpu": {}}, "side": {nic: []byte("other")}}
	for container, answers := range want {
		for key, answer := range answers {
			if _, err := r.Keep(t.Context(), "a", container, key, answer); err != nil {
				t.Fatal(err)
			}
		}
	}
	r = restart(t, w, r)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, r.List()[0].Answers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, missing := range [][3]string{{"b", "main", nic}, {"a", "init", nic}, {"a", "side", "example.com/gpu"}} {
		if kept, ok := r.Kept(missing[0], missing[1], missing[2]); ok {
			t.Errorf("%v has %q", missing, kept)
		}
	}
}

func TestOneOfManyAnswersThatComeAtOnceIsKept(t *testing.T) {
	_, r := granted(t)
	var group sync.WaitGroup
	kept := make([]string, 8)
	for i := range kept {
		group.Go(func() {
			var err error
			if kept[i], err = keep(r, fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, answer := range kept {
		if answer != kept[0] {
			t.Errorf("they were told different answers: %q", kept)
		}
	}
}

func TestAnAnswerGoesWithItsPod(t *testing.T) {
	w, r := granted(t)
	if _, err := keep(r, "answer"); err != nil {
		t.Fatal(err)
	}
	w.stop("a", false)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept, ok := r.Kept("a", "main", nic); ok {
		t.Errorf("kept %q", kept)
	}
	if _, err := keep(r, "late"); !errors.Is(err, ErrNotGranted) {
		t.Errorf("an answer for a pod that is gone: %v, want ErrNotGranted", err)
	}
}

func TestAnAnswerThatIsOfNoUseIsForgottenForItsContainerAlone(t *testing.T) {
	w, r := granted(t)
	for _, container := range []string{"main", "side"} {
		if _, err := r.Keep(t.Context(), "a", container, nic, []byte(container)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		pod, container string
		want           bool
	}{{"a", "main", true}, {"a", "main", false}, {"a", "init", false}, {"b", "main", false}} {
		if forgot, err := r.Forget(test.pod, test.container); forgot != test.want || err != nil {
			t.Errorf("forgot what pod %s, container %s was told: %v, %v; want %v", test.pod, test.container, forgot, err, test.want)
		}
	}
	r = restart(t, w, r)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Answers{"side": {nic: []byte("side")}}, r.List()[0].Answers); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if kept, err := keep(r, "better"); kept != "better" || err != nil {
		t.Errorf("kept %q, %v", kept, err)
	}
}

func TestAnAnswerThatCannotBeForgottenIsStillThere(t *testing.T) {
	_, r := granted(t)
	if _, err := keep(r, "answer"); err != nil {
		t.Fatal(err)
	}
	unplug(t, r)
	if _, err := r.Forget("a", "main"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if kept, ok := r.Kept("a", "main", nic); !ok || string(kept) != "answer" {
		t.Errorf("kept %q, %v", kept, ok)
	}
}

func TestAnAnswerThatIsTooLargeOrCannotBeWrittenIsNotKept(t *testing.T) {
	_, r := granted(t)
	if _, err := r.Keep(t.Context(), "a", "main", nic, bytes.Repeat([]byte{1}, maxAnswer+1)); err == nil {
		t.Error("kept an answer that is too large")
	}
	away := unplug(t, r)
	if _, err := keep(r, "answer"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if kept, ok := r.Kept("a", "main", nic); ok {
		t.Errorf("kept %q", kept)
	}
	away.plugIn(t)
	if kept, err := keep(r, "answer"); kept != "answer" || err != nil {
		t.Errorf("when it can be written: %q, %v", kept, err)
	}
}
