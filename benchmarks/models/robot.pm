// A robot crosses a hall of 9 x 9 with two gaps between pits; its wheels slip to either side.
mdp
formula pit = (x=2 & y!=6) | (x=5 & y!=2) | (x=7 & (y=1 | y=5 | y=7));
formula home = x=8 & y=8;
module robot
  x : [0..8] init 0;
  y : [0..8] init 0;
  [east] !pit & !home -> 0.8 : (x'=min(x+1,8)) + 0.1 : (y'=min(y+1,8)) + 0.1 : (y'=max(y-1,0));
  [west] !pit & !home -> 0.8 : (x'=max(x-1,0)) + 0.1 : (y'=min(y+1,8)) + 0.1 : (y'=max(y-1,0));
  [north] !pit & !home -> 0.8 : (y'=min(y+1,8)) + 0.1 : (x'=min(x+1,8)) + 0.1 : (x'=max(x-1,0));
  [south] !pit & !home -> 0.8 : (y'=max(y-1,0)) + 0.1 : (x'=min(x+1,8)) + 0.1 : (x'=max(x-1,0));
  [stay] pit | home -> true;
endmodule
label "goal" = home;
label "avoid" = pit;
