#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Index and sign one apt repository. Runs in the services image, with the repository at /repo and the keyring at /signing.
#   index_repository.sh flat ORIGIN                    packages beside the index, as NVIDIA's are   (Suites: /)
#   index_repository.sh suite ORIGIN SUITE COMPONENT   pool/SUITE and dists/SUITE, as a distribution's are
set -eu
layout=$1 origin=$2 suite=${3:-} component=${4:-}
export GNUPGHOME=/signing
cd /repo
case $layout in
  flat)
    index=.
    apt-ftparchive packages . >Packages
    fields="-o APT::FTPArchive::Release::Origin=$origin -o APT::FTPArchive::Release::Label=$origin"
    ;;
  suite)
    index=dists/$suite
    mkdir -p "$index/$component/binary-amd64"
    apt-ftparchive packages "pool/$suite" >"$index/$component/binary-amd64/Packages"
    fields="-o APT::FTPArchive::Release::Origin=$origin -o APT::FTPArchive::Release::Label=$origin -o APT::FTPArchive::Release::Suite=$suite
      -o APT::FTPArchive::Release::Codename=$suite -o APT::FTPArchive::Release::Components=$component -o APT::FTPArchive::Release::Architectures=amd64"
    ;;
  *)
    echo "index_repository.sh: unknown layout $layout" >&2
    exit 2
    ;;
esac
find "$index" -name Packages -exec gzip --force --keep --no-name {} +
# shellcheck disable=SC2086 # the options of apt-ftparchive are words
apt-ftparchive $fields release "$index" >/tmp/Release
cp /tmp/Release "$index/Release"
gpg --batch --yes --quiet --clearsign --output "$index/InRelease" "$index/Release"
gpg --batch --yes --quiet --armor --detach-sign --output "$index/Release.gpg" "$index/Release"
