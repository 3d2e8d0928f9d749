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

// loadUsers is how many users send what-ifs at a time. Each may send five a second, and the
// scheduler has four of them wait for an answer: with so many, it always has one to answer. More
// would measure what it costs to put them off.
const loadUsers = 8

// load sends what-ifs to a scheduler while it schedules.
type load struct {
	users    []*http.Client
	answered atomic.Int64
}

// count returns how many questions were answered.
func (l *load) count() int64 {
	if l == nil {
		return 0
	}
	return l.answered.Load()
}

// isShort reports whether fewer than the wanted questions were answered.
func (l *load) isShort(wanted int) bool { return l.count() < int64(wanted) }

// newLoad makes the users.
func (b *bench) newLoad() (*load, error) {
	l := &load{}
	for i := range loadUsers {
		client, err := b.server.Client(fmt.Sprintf("user-%d", i))
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
		l.users = append(l.users, user)
	}
	return l, nil
}

// questions are sent one after another, about a cluster of this many nodes.
func questions(nodes int, scheduler string) []schedulerapi.WhatIfRequest {
	template := podOf(pair, "pending", scheduler)
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

// begin has all users query the scheduler at an address until the function that it returns is
// called, which returns the first answer that is wrong.
func (l *load) begin(ctx context.Context, address string, requests []schedulerapi.WhatIfRequest) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	var working sync.WaitGroup
	for number, user := range l.users {
		working.Go(func() {
			for i := number; ctx.Err() == nil; i++ {
				wait, err := l.query(ctx, user, address, &requests[i%len(requests)])
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

// query sends one what-if, and returns how long to wait until the next. That the scheduler puts it
// off is how it should be.
func (l *load) query(
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
		return time.Second, fmt.Errorf("query a what-if: %s: %s", response.Status, said)
	}
	var placements schedulerapi.Placements
	if err := json.Unmarshal(said, &placements); err != nil {
		return 0, err
	}
	l.answered.Add(1)
	return 0, nil
}
