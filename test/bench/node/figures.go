// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"strings"

	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// metricsAddress is kubecri's default.
const metricsAddress = "127.0.0.1:10261"

// callsOf returns how many calls of each CRI method kubecri has passed on.
func callsOf(ctx context.Context, node *cluster.Node) (map[string]float64, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return node.Sandbox().Dial(ctx, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read kubecri's metrics: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read kubecri's metrics: %w", err)
	}
	metrics := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(text), &metrics); err != nil {
		return nil, fmt.Errorf("read kubecri's metrics: %w", err)
	}
	calls := map[string]float64{}
	for _, sample := range metrics["kubecri_cri_calls_total"] {
		calls[path.Base(string(sample.Metric["method"]))] += float64(sample.Value)
	}
	return calls, nil
}

// writesOf returns how many writes each client has made, by the name in its user agent, from an
// audit log.
func writesOf(log string) (map[string]int, error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	writes := map[string]int{}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return writes, nil // what comes after the last line is not complete yet
		}
		if err != nil {
			return nil, err
		}
		var event struct {
			UserAgent string `json:"userAgent"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("%s: %w", log, err)
		}
		client, _, _ := strings.Cut(event.UserAgent, "/")
		writes[client]++
	}
}
