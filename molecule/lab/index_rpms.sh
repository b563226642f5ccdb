#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Build the packages of one dnf repository, index and sign it. Runs in the services image, with the repository at /repo, the keyring at /signing, and at
# /sources a folder for each package to build (package.spec, root/), ready-made packages and, where there are module streams, modules.yaml.
#   index_rpms.sh signed      packages carry signatures, as most vendors' do
#   index_rpms.sh unsigned    only the index does, as with NVIDIA's container toolkit
set -eu
packages=$1
export GNUPGHOME=/signing GPG_TTY=none SOURCE_DATE_EPOCH=1796083200
find /sources -name package.spec | sort | while read -r spec; do
  rpmbuild -bb --quiet --target x86_64 --define '_topdir /tmp/rpmbuild' --define '_rpmdir /repo' \
    --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' "$spec"
done
find /sources -maxdepth 1 -name '*.rpm' -exec cp {} /repo/ \;
if [ "$packages" = signed ]; then
  find /repo -maxdepth 1 -name '*.rpm' -exec rpmsign --addsign --define '_gpg_name lab@services.rackready.lab' {} + >/dev/null
fi
# gzip: what dnf of EL 9 reads without more.
createrepo_c --quiet --no-database --general-compress-type=gz --revision="$SOURCE_DATE_EPOCH" --set-timestamp-to-revision /repo
[ ! -f /sources/modules.yaml ] || modifyrepo_c --mdtype=modules --compress-type=gz /sources/modules.yaml /repo/repodata >/dev/null
gpg --batch --yes --quiet --armor --detach-sign --output /repo/repodata/repomd.xml.asc /repo/repodata/repomd.xml
