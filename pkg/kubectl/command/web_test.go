// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/web"
)

// webOn returns the command web for a cluster that is not there, and what it prints.
func webOn(page fs.FS, missing error) (*webOptions, *strings.Builder) {
	var out strings.Builder
	client := newFixture().client
	return &webOptions{
		address: "127.0.0.1:0", open: true,
		page: func() (fs.FS, error) { return page, missing },
		env: &environment{
			IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard},
			client: func() (corev1client.CoreV1Interface, string, error) {
				return streams{client.CoreV1()}, "default", nil
			},
			clusterName: func() string { return "test" },
		},
	}, &out
}

func TestTheMapIsOpenedWithAnAddressThatIsNotTheOneThatIsPrinted(t *testing.T) {
	o, out := webOn(fstest.MapFS{"index.html": {}}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var opened string
	o.env.browse = func(_ context.Context, url string) error {
		opened = url
		cancel()
		return nil
	}
	if err := o.run(ctx); err != nil {
		t.Fatal(err)
	}
	printed := strings.TrimSpace(out.String())
	if !strings.HasPrefix(printed, "http://127.0.0.1:") || !strings.Contains(printed, "/#token=") ||
		!strings.Contains(opened, "/#token=") || opened == printed {
		t.Errorf("printed %q, opened %q", printed, opened)
	}
}

func TestAProgramWithoutThePageSaysWhatToDo(t *testing.T) {
	o, _ := webOn(nil, web.ErrNoPage)
	err := o.run(t.Context())
	if !errors.Is(err, web.ErrNoPage) || !strings.Contains(err.Error(), "make kubectl-device") {
		t.Errorf("got %v", err)
	}
}
