// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// Answers are what was said once for a pod's containers and is to be said again when they are created again, such as a
// device plugin's answer to Allocate: bytes, opaque here, by the container's name and a key that whoever keeps them chooses.
type Answers map[string]map[string][]byte

// maxAnswer is the size of the largest answer that is kept, in bytes. All answers of a node are in one file, which is written
// anew with each of them; those of device plugins have some hundred bytes.
const maxAnswer = 64 << 10

// ErrNotGranted is wrapped by Keep's error for a pod that is not on record, or not any more.
var ErrNotGranted = errors.New("the pod holds no devices of this node")

// Kept returns the answer that was kept for the pod's container under the key, if there is one. It must not be changed. An
// answer is kept as long as the pod is on record and the machine is not booted anew: device nodes may have other numbers then,
// and files that a plugin made in memory as it answered are gone. It is lost with a file that is lost or damaged, and does not
// count any more when a release wrote the file that knows no answers, or no boots. It must be asked for again then, which
// should harm nobody: nothing is left of the answer but in containers that were made with it.
func (r *Record) Kept(podUID, container, key string) (answer []byte, kept bool) {
	grant, ok := r.current()[podUID]
	if !ok {
		return nil, false
	}
	answer, kept = grant.answersOf(r.boot)[container][key]
	return answer, kept
}

// Keep keeps the answer for the pod's container under the key, unless one was kept in this boot, and returns the one that is kept,
// which must not be changed: of two that ask at the same time, the first decides for both. When it returns, the answer
// survives a crash. After an error, nothing is kept and nothing may be done with answer.
func (r *Record) Keep(ctx context.Context, podUID, container, key string, answer []byte) (kept []byte, err error) {
	if len(answer) > maxAnswer {
		return nil, fmt.Errorf("keep the answer %q for container %q: it has %d bytes, at most %d are kept", key, container, len(answer), maxAnswer)
	}
	if err := r.ensureComplete(ctx); err != nil {
		return nil, err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	now := r.current()
	grant, ok := now[podUID]
	if !ok {
		return nil, fmt.Errorf("keep the answer %q for container %q of the pod with UID %q: %w", key, container, podUID, ErrNotGranted)
	}
	if before, ok := grant.answersOf(r.boot)[container][key]; ok {
		return before, nil
	}
	next := maps.Clone(now)
	next[podUID] = grant.with(r.boot, container, key, answer)
	if err := r.replace(next); err != nil {
		return nil, err
	}
	return next[podUID].Answers[container][key], nil
}

// Forget drops the answers that were kept for the pod's container, because they turned out to be of no use, and reports whether
// there were any. They are asked for again then.
func (r *Record) Forget(podUID, container string) (forgot bool, err error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	now := r.current()
	grant, ok := now[podUID]
	if !ok || len(grant.Answers[container]) == 0 {
		return false, nil
	}
	changed := *grant
	changed.Answers = maps.Clone(grant.Answers)
	delete(changed.Answers, container)
	next := maps.Clone(now)
	next[podUID] = &changed
	return true, r.replace(next)
}

// answersOf returns the answers if they were given in that boot of the machine.
func (g *Grant) answersOf(boot string) Answers {
	if g.Boot != boot {
		return nil
	}
	return g.Answers
}

// with returns a copy of g that has the answer, too, and no answers of other boots.
func (g *Grant) with(boot, container, key string, answer []byte) *Grant {
	next := *g
	next.Boot = boot
	next.Answers = maps.Clone(g.answersOf(boot))
	if next.Answers == nil {
		next.Answers = Answers{}
	}
	next.Answers[container] = maps.Clone(next.Answers[container])
	if next.Answers[container] == nil {
		next.Answers[container] = map[string][]byte{}
	}
	// Not nil, which JSON could not tell from an empty one.
	next.Answers[container][key] = append([]byte{}, answer...)
	return &next
}
