// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// askers is how many users ask at a time. Each may ask five times a second, and the scheduler has
// four of them wait for an answer: with so many, it always has one to answer. More would measure
// what it costs to put them off.
const askers = 8

// asking asks a scheduler what would be if, while it schedules.
type asking struct {
	users    []*http.Client
	answered atomic.Int64
}

// count returns how many questions were answered.
func (a *asking) count() int64 {
	if a == nil {
		return 0
	}
	return a.answered.Load()
}

// left reports whether fewer than the wanted questions were answered.
func (a *asking) left(wanted int) bool { return a.count() < int64(wanted) }

// newAsking makes the users.
func (b *bench) newAsking() (*asking, error) {
	a := &asking{}
	for i := range askers {
		client, err := b.server.Client(fmt.Sprintf("asker-%d", i))
		if err != nil {
			return nil, err
		}
		config := rest.CopyConfig(client.Config)
		config.QPS = -1
		config.Insecure, config.CAData = true, nil // the scheduler has made its certificate itself
		user, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		a.users = append(a.users, user)
	}
	return a, nil
}

// questions are asked in turn, about a cluster of this many nodes.
func questions(nodes int, scheduler string) []schedulerapi.WhatIfRequest {
	template := podOf(pair, "asked", scheduler)
	about := schedulerapi.FitRequest{
		Namespace: metav1.NamespaceDefault,
		Template:  corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec},
	}
	first, last := nodeName(0), nodeName(nodes-1)
	return []schedulerapi.WhatIfRequest{
		{FitRequest: about, Changes: []schedulerapi.Change{{Cordon: first}}},
		{FitRequest: about, Changes: []schedulerapi.Change{{WithNodeLike: last}}},
		{FitRequest: about, Changes: []schedulerapi.Change{{Cordon: last}, {WithNodeLike: first}}},
	}
}

// begin has all users ask the scheduler at an address until the function that it returns is called,
// which returns the first answer that is wrong.
func (a *asking) begin(ctx context.Context, address string, asked []schedulerapi.WhatIfRequest) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	var working sync.WaitGroup
	for number, user := range a.users {
		working.Go(func() {
			for i := number; ctx.Err() == nil; i++ {
				wait, err := a.ask(ctx, user, address, &asked[i%len(asked)])
				if err != nil && ctx.Err() == nil {
					select {
					case failed <- err:
					default:
					}
				}
				select {
				case <-ctx.Done():
				case <-time.After(wait):
				}
			}
		})
	}
	return func() error {
		cancel()
		working.Wait()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}
}

// ask asks one question, and returns how long to wait until the next. That the scheduler puts it
// off is how it should be.
func (a *asking) ask(
	ctx context.Context, user *http.Client, address string, question *schedulerapi.WhatIfRequest,
) (wait time.Duration, err error) {
	text, err := json.Marshal(question)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+schedulerapi.WhatIfPath,
		bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := user.Do(request)
	if err != nil {
		return time.Second, err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return 0, err
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode == http.StatusServiceUnavailable:
		return time.Second, nil // what Retry-After says
	case response.StatusCode != http.StatusOK:
		return time.Second, fmt.Errorf("ask what would be if: %s: %s", response.Status, said)
	}
	var placements schedulerapi.Placements
	if err := json.Unmarshal(said, &placements); err != nil {
		return 0, err
	}
	a.answered.Add(1)
	return 0, nil
}
