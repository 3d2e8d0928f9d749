// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// shown are the pods that the API server has shown.
type shown map[string]bool

func (s shown) Lookup(ctx context.Context, uid string) (pods.Pod, error) {
	if pod, known := s.Get(uid); known {
		return pod, nil
	}
	<-ctx.Done()
	return pods.Pod{}, pods.ErrUnknown
}

func (s shown) Get(uid string) (pods.Pod, bool) { return pods.Pod{Name: uid}, s[uid] }

func (shown) DeviceResources() (names map[types.ResourceName]bool, all bool) { return nil, true }

func TestAHundredUnknownPodsHoldUpTheOthersAsLongAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := shown{}
		p := NewPods(api)
		lookup := func(uid string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			pod, err := p.Lookup(ctx, uid)
			if err == nil && pod.Name != uid {
				t.Errorf("pod %s is taken for %s", uid, pod.Name)
			}
			return err
		}
		began := time.Now()
		for i := range 100 {
			if err := lookup(fmt.Sprint(i)); !errors.Is(err, pods.ErrUnknown) {
				t.Errorf("pod %d: %v", i, err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("100 unknown pods take %v", took)
		}
		api["50"] = true
		if err := lookup("50"); err != nil {
			t.Errorf("when the API server has shown it: %v", err)
		}
		// The first of another time may be shown in time.
		time.Sleep(lateTTL)
		began = time.Now()
		_ = lookup("51")
		if took := time.Since(began); took != time.Second {
			t.Errorf("%v later, an unknown pod takes %v", lateTTL, took)
		}
	})
}
