// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Pods come and go at random, kubecri restarts, the file is lost or corrupt: at no time do the pods
// that live hold more than there is, and who is granted something once keeps it.
func TestPropertyLivePodsNeverHoldMoreThanThereIs(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	names := []types.ResourceName{cards0, cards1, memory0}
	for range 20 {
		w := newFixture()
		r, path := open(t, w)
		living := map[string]Allocation{}
		granted, refused := 0, 0
		for step := range 60 {
			switch random.IntN(6) {
			case 0, 1, 2:
				quantities := map[types.ResourceName]int64{}
				for _, name := range names {
					if random.IntN(2) == 0 {
						quantities[name] = 1 + random.Int64N(node[name])
					}
				}
				if len(quantities) == 0 {
					continue
				}
				g, err := r.Grant(context.Background(), wants(fmt.Sprint(step), quantities), capacity)
				if err != nil {
					refused++
					continue
				}
				granted++
				living[g.PodUID] = g
				w.run(g)
			case 3:
				for uid := range living {
					w.stop(uid, false)
					delete(living, uid)
					break
				}
			case 4:
				if random.IntN(2) == 0 {
					if err := os.WriteFile(path, []byte("corrupt"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				r = restart(t, w, r)
			case 5:
				for uid, g := range living {
					again, err := r.Grant(
						context.Background(),
						wants(uid, map[types.ResourceName]int64{cards0: 1}),
						capacity,
					)
					if err != nil {
						t.Fatalf("pod %s does not get its devices again: %v", uid, err)
					}
					if diff := cmp.Diff(g.Holds(), again.Holds()); diff != "" {
						t.Fatalf("pod %s gets other devices (-before +now):\n%s", uid, diff)
					}
				}
			}
			for _, name := range names {
				var held int64
				for _, g := range living {
					held += g.Holds()[name]
				}
				if held > node[name] {
					t.Fatalf("%s: %d of %d are held", name, held, node[name])
				}
			}
		}
		if granted == 0 || refused == 0 {
			t.Errorf("%d granted, %d refused: the test shows nothing", granted, refused)
		}
	}
}
