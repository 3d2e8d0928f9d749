// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

const (
	// refusalEntries is of how many pods a refusal is remembered.
	refusalEntries = 1 << 11
	// logBurst is how many refusals of one pod are logged in each logInterval.
	logBurst, logInterval = 5, 10 * time.Minute
)

// Refusals remembers which pods were refused. The kubelet creates the containers of such a pod
// again and again, and each time costs as little as possible. All methods are safe for concurrent
// use; those of a nil Refusals remember nothing.
type Refusals struct {
	seed        maphash.Seed
	annotations *cache.Cache[annotationKey, cachedRefusal]

	mu     sync.Mutex
	logged map[string]logWindow // by the pod's UID
}

// annotationKey identifies what the annotation KubeDevice/DeviceInfo of a pod says and, if the
// refusal is for the seal, the annotation KubeDevice/Seal.
type annotationKey struct {
	uid    string
	sum    uint64
	sealed bool
	seal   uint64
}

// cachedRefusal is why a pod was refused.
type cachedRefusal struct {
	cause error
	// until is closed when the cause may have ceased; nil means that it is for good.
	until <-chan struct{}
}

// current returns the cause while it holds, and nil otherwise.
func (r cachedRefusal) current() error {
	select {
	case <-r.until:
		return nil
	default:
		return r.cause
	}
}

// logWindow is how often a refusal of a pod was logged since its begin.
type logWindow struct {
	begin time.Time
	lines int
}

// NewRefusals returns one that remembers none.
func NewRefusals() *Refusals {
	return &Refusals{
		seed: maphash.MakeSeed(), annotations: cache.New[annotationKey, cachedRefusal](refusalEntries),
		logged: map[string]logWindow{},
	}
}

func (r *Refusals) key(pod podRef) annotationKey {
	return annotationKey{uid: pod.uid, sum: maphash.String(r.seed, pod.annotations[deviceinfo.Annotation])}
}

func (r *Refusals) sealKey(pod podRef) annotationKey {
	key := r.key(pod)
	key.sealed, key.seal = true, maphash.String(r.seed, pod.seal)
	return key
}

// get returns why the pod was refused for its annotation, which is the same as then; nil if it was
// not, as far as that is remembered.
func (r *Refusals) get(pod podRef) error {
	if r == nil {
		return nil
	}
	known, _ := r.annotations.Get(r.key(pod))
	return known.current()
}

// remember remembers the refusal of a pod whose container is created now, if it depends on no more
// than its basis; an error for another reason is not remembered. It returns the error.
func (r *Refusals) remember(pod podRef, err error) error {
	var refused *refusal
	if r == nil || !errors.As(err, &refused) {
		return err
	}
	switch refused.basis {
	case unknownBasis:
	case basedOnAnnotation:
		r.annotations.Add(r.key(pod), cachedRefusal{refused.cause, refused.until})
	case basedOnSeal:
		r.annotations.Add(r.sealKey(pod), cachedRefusal{refused.cause, refused.until})
	}
	return err
}

// getSealed returns why the pod was refused for its seal, as get does.
func (r *Refusals) getSealed(pod podRef) error {
	if r == nil {
		return nil
	}
	known, _ := r.annotations.Get(r.sealKey(pod))
	return known.current()
}

// logs reports whether to log a refusal of the pod now, and whether that is the last one for a
// while.
func (r *Refusals) logs(podUID string, now time.Time) (log, last bool) {
	if r == nil {
		return true, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	window := r.logged[podUID]
	if now.Sub(window.begin) >= logInterval {
		r.makeRoom(now)
		window = logWindow{begin: now}
	}
	window.lines++
	r.logged[podUID] = window
	return window.lines <= logBurst, window.lines == logBurst
}

// makeRoom forgets pods that were not refused lately, and all of them if there are too many. The
// caller holds the mutex.
func (r *Refusals) makeRoom(now time.Time) {
	if len(r.logged) < refusalEntries {
		return
	}
	for uid, window := range r.logged {
		if now.Sub(window.begin) >= logInterval {
			delete(r.logged, uid)
		}
	}
	if len(r.logged) >= refusalEntries {
		clear(r.logged)
	}
}
